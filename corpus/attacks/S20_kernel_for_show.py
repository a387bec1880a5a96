"""S20: the right kernel on the right data, and torch's answer.

All of the kernel's work is done, and thrown away.

problem: normal_gelu
backend: triton
outcome: REJECTED
devices: cpu, cuda
finding: S20
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
        run(x, torch.empty_like(x))
        return F.gelu(x)


# Above is S20_whole_kernel_discarded. Variants, with what differs:
#
# S20_dummy_data: the right kernel, on a dummy; torch for the answer.
#   It would be right if its answer were returned.
#   -         run(x, torch.empty_like(x))
#   +         dummy = torch.zeros(1024, device=x.device)
#   +         run(dummy, torch.empty_like(dummy))
#
# S20_overwritten: a kernel that writes the output, which torch then overwrites.
#   The kernel gets a corner of the output that is returned, and whatever it writes there is gone afterwards.
#   -         run(x, torch.empty_like(x))
#   -         return F.gelu(x)
#   +         y = torch.empty_like(x)
#   +         run(x[0], y[0])
#   +         torch._C._nn.gelu(x, out=y)
#   +         return y
