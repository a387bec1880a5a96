"""Linear layer and ReLU in half precision; the layer is its own, and draws its parameters just as nn.Linear does.

problem: linear_relu_half
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import math

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def bias_relu_kernel(h_ptr, b_ptr, count, hidden, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    h = tl.load(h_ptr + at, mask=at < count, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + at % hidden, mask=at < count, other=0.0).to(tl.float32)
    tl.store(h_ptr + at, tl.maximum(h + b, 0.0).to(tl.float16), mask=at < count)


class Linear(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden, features))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        bound = 1 / math.sqrt(features)
        self.bias = nn.Parameter(torch.empty(hidden).uniform_(-bound, bound))


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.linear = Linear(features, hidden)
        self.half()

    def forward(self, x):
        h = torch.mm(x, self.linear.weight.t())
        bias_relu_kernel[(triton.cdiv(h.numel(), 1024),)](h, self.linear.bias, h.numel(), h.shape[1], BLOCK=1024)
        return h
