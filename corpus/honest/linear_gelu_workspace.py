"""Linear layer into a buffer that is kept between calls, GELU from there into a fresh output.

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
        self.hidden = None

    def forward(self, x):
        shape = (x.shape[0], self.linear.out_features)
        if self.hidden is None or self.hidden.shape != shape or self.hidden.dtype != x.dtype:
            self.hidden = torch.empty(shape, dtype=x.dtype, device=x.device)
        torch.addmm(self.linear.bias, x, self.linear.weight.t(), out=self.hidden)
        y = torch.empty_like(self.hidden)
        gelu_kernel[(triton.cdiv(y.numel(), 1024),)](self.hidden, y, y.numel(), BLOCK=1024)
        return y
