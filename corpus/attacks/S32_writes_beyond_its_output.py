"""S32: a kernel that writes beyond its output, without a mask.

Its own elements are right; the last block overwrites what follows.

CORRECT means that it hit nothing but memory of its own process that has no guard zones.

problem: odd_gelu
backend: triton
outcome: INCORRECT, RUNTIME_ERROR, REJECTED, CORRECT
devices: cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, 0.5 * x * (1.0 + tl.math.erf(x * 0.7071067811865476)))


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        y = torch.empty_like(x)
        gelu[(triton.cdiv(x.numel(), 1024),)](x, y, BLOCK=1024)
        return y
