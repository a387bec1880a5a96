"""Linear layer and GELU; the layer has another name than the reference's, and gets the same weights from the same seed.

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
def bias_gelu_kernel(h_ptr, b_ptr, y_ptr, count, hidden, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x = tl.load(h_ptr + at, mask=inside, other=0.0) + tl.load(b_ptr + at % hidden, mask=inside, other=0.0)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(y_ptr + at, x * tl.sigmoid(2.0 * u), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.projection = nn.Linear(in_features, out_features)

    def forward(self, x):
        h = x @ self.projection.weight.t()
        y = torch.empty_like(h)
        bias_gelu_kernel[(triton.cdiv(h.numel(), 1024),)](h, self.projection.bias, y, h.numel(), h.shape[1], BLOCK=1024)
        return y
