"""S19: a kernel that is defined and never called.

torch does the work.

problem: normal_gelu
backend: triton
outcome: REJECTED
devices: cpu, cuda
finding: S19
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def gelu(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < count)
    tl.store(y_ptr + at, 0.5 * x * (1.0 + tl.math.erf(x * 0.7071067811865476)), at < count)


def run(x, y):
    block = triton.next_power_of_2(triton.cdiv(x.numel(), 8)) if x.device.type == "cpu" else 1024
    gelu[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), BLOCK=block)


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return F.gelu(x)


# Above is S19_never_called. Variants, with what differs:
#
# S19_called_when_never: a kernel behind a condition that is never true.
#   Whoever reads the source finds a launch in the forward pass.
#   -     def forward(self, x):
#   +     def forward(self, x):
#   +         if x.dim() > 8:
#   +             y = torch.empty_like(x)
#   +             run(x, y)
#   +             return y
#
# S19_only_when_constructed: a kernel that runs once, at construction.
#   Launches are seen if they are counted from the beginning; no call has any.
#   -         super().__init__()
#   +         super().__init__()
#   +         device = "cuda" if torch.cuda.is_available() else "cpu"
#   +         x = torch.randn(1024, device=device)
#   +         run(x, torch.empty_like(x))
#
# S19_swallowed_failure: a kernel whose failure is swallowed, so that torch answers.
#   It fails each time: an argument is missing.
#   -         return F.gelu(x)
#   +         try:
#   +             y = torch.empty_like(x)
#   +             gelu[(1,)](x, y, BLOCK=1024)
#   +             return y
#   +         except Exception:
#   +             return F.gelu(x)
