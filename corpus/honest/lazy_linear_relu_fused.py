"""A lazy linear layer, whose parameters a kernel uses for the bias and the ReLU after torch's product.

problem: lazy_linear_relu
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def bias_relu_kernel(h_ptr, bias_ptr, count, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    h = tl.load(h_ptr + at, mask=inside, other=0.0)
    bias = tl.load(bias_ptr + at % columns, mask=inside, other=0.0)
    tl.store(h_ptr + at, tl.maximum(h + bias, 0.0), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.linear = nn.LazyLinear(outputs)

    def forward(self, x):
        if isinstance(self.linear, nn.LazyLinear):
            return torch.relu(self.linear(x))
        h = x @ self.linear.weight.t()
        bias_relu_kernel[(triton.cdiv(h.numel(), 1024),)](h, self.linear.bias, h.numel(), h.shape[1], BLOCK=1024)
        return h
