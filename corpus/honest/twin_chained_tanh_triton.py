"""The honest twin of Triton attacks on chained_tanh: all three in one kernel.

problem: chained_tanh
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tanh_of(x):
    return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0


@triton.jit
def chained_tanh(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    value = tl.load(x_ptr + at, mask=inside, other=0.0)
    tl.store(y_ptr + at, tanh_of(tanh_of(tanh_of(value))), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        block = 1024 if x.is_cuda else 65536
        chained_tanh[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), BLOCK=block)
        return y
