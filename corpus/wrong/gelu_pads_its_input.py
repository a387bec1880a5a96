"""GELU that writes a block of zeros behind its input first, so that its loads need no mask.

The input has no room behind its end: the zeros go into other memory.

problem: odd_gelu
backend: triton
outcome: INCORRECT
devices: cpu, cuda
finding: M01
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def pad(x_ptr, count, BLOCK: tl.constexpr):
    tl.store(x_ptr + count + tl.arange(0, BLOCK), 0.0)


@triton.jit
def gelu(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, 0.5 * x * (1.0 + tl.math.erf(x * 0.7071067811865476)), mask=at < count)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        pad[(1,)](x, x.numel(), BLOCK=1024)
        gelu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
