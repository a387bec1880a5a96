"""S20: a kernel without any effect, and torch for the work.

It gets input and output, and touches neither.

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
def idle(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, at < 0), at < 0)


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        y = F.gelu(x)
        idle[(4,)](x, y, x.numel(), BLOCK=1024)
        return y
