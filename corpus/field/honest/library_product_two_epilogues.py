"""Two library products, each with an epilogue: bias and SiLU after the first, bias and the residual after the second.

problem: field_two_layer_mlp
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def silu_kernel(h_ptr, b_ptr, count, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    h = tl.load(h_ptr + at, mask=at < count, other=0.0) + tl.load(b_ptr + at % columns, mask=at < count, other=0.0)
    tl.store(h_ptr + at, h * tl.sigmoid(h), mask=at < count)


@triton.jit
def residual_kernel(h_ptr, b_ptr, x_ptr, count, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    h = tl.load(h_ptr + at, mask=at < count, other=0.0) + tl.load(b_ptr + at % columns, mask=at < count, other=0.0)
    tl.store(h_ptr + at, h + tl.load(x_ptr + at, mask=at < count, other=0.0), mask=at < count)


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        x = x.contiguous()
        h = torch.mm(x, self.up.weight.t())
        silu_kernel[(triton.cdiv(h.numel(), 1024),)](h, self.up.bias, h.numel(), h.shape[1], BLOCK=1024)
        y = torch.mm(h, self.down.weight.t())
        residual_kernel[(triton.cdiv(y.numel(), 1024),)](y, self.down.bias, x, y.numel(), y.shape[1], BLOCK=1024)
        return y
