"""The library's linear layer, and a GELU kernel in place on its result.

problem: linear_gelu
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch.nn.functional as F
import triton
import triton.language as tl
from torch import nn


@triton.jit
def gelu_in_place_kernel(h_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(h_ptr + at, mask=at < count, other=0.0)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    # tanh of |u| from an exponential that cannot overflow
    decay = tl.exp(-2.0 * tl.abs(u))
    size = (1.0 - decay) / (1.0 + decay)
    tanh = tl.where(u < 0, -size, size)
    tl.store(h_ptr + at, 0.5 * x * (1.0 + tanh), mask=at < count)


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.linear = nn.Linear(features, hidden)

    def forward(self, x):
        h = F.linear(x, self.linear.weight, self.linear.bias)
        gelu_in_place_kernel[(triton.cdiv(h.numel(), 1024),)](h, h.numel(), BLOCK=1024)
        return h
