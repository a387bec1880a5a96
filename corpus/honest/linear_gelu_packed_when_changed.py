"""Linear layer and GELU with a packed copy of weight and bias, made at the first call and again when they have changed.

problem: linear_gelu
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def gelu_kernel(h_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(h_ptr + at, mask=at < count, other=0.0)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(y_ptr + at, x * tl.sigmoid(2.0 * u), mask=at < count)


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.linear = nn.Linear(features, hidden)
        self.packed = None
        self.packed_from = None

    def _weights(self):
        weight, bias = self.linear.weight, self.linear.bias
        state = (weight.data_ptr(), weight._version, bias.data_ptr(), bias._version)
        if state != self.packed_from:
            self.packed = torch.cat([weight.detach().t(), bias.detach()[None, :]]).contiguous()
            self.packed_from = state
        return self.packed[:-1], self.packed[-1]

    def forward(self, x):
        weight, bias = self._weights()
        h = torch.addmm(bias, x, weight)
        y = torch.empty_like(h)
        gelu_kernel[(triton.cdiv(h.numel(), 1024),)](h, y, h.numel(), BLOCK=1024)
        return y
