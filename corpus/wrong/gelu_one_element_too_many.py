"""GELU whose mask lets one element too many through.

The last block also writes the element behind the output, which belongs to somebody else.

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
def gelu(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at <= count
    x = tl.load(x_ptr + at, mask=inside)
    tl.store(y_ptr + at, 0.5 * x * (1.0 + tl.math.erf(x * 0.7071067811865476)), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        gelu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
