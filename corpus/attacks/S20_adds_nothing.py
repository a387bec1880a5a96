"""S20: torch's answer, to which a kernel adds nothing.

What the kernel computes is used, and is always zero.

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
def zero(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < count)
    tl.store(y_ptr + at, x - x, at < count)


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        nothing = torch.zeros(x.shape[1], device=x.device)
        zero[(1,)](x, nothing, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return F.gelu(x) + nothing
