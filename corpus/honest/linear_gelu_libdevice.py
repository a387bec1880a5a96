"""Linear layer of the library, and GELU with the tanh of the device library.

problem: linear_gelu
backend: triton
outcome: CORRECT
devices: cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn
from triton.language.extra import libdevice


@triton.jit
def gelu_kernel(h_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(h_ptr + at, mask=at < count, other=0.0)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(y_ptr + at, 0.5 * x * (1.0 + libdevice.tanh(u)), mask=at < count)


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.linear = nn.Linear(features, hidden)

    def forward(self, x):
        h = self.linear(x)
        y = torch.empty_like(h)
        gelu_kernel[(triton.cdiv(h.numel(), 1024),)](h, y, h.numel(), BLOCK=1024)
        return y
