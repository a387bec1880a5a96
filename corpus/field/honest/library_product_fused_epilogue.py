"""The library's product, then bias and GELU in one kernel, in place on the product.

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
def epilogue_kernel(h_ptr, b_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < columns
    h = tl.load(h_ptr + row + at, mask=inside, other=0.0) + tl.load(b_ptr + at, mask=inside, other=0.0)
    tl.store(h_ptr + row + at, h * tl.sigmoid(1.5957691216057308 * (h + 0.044715 * h * h * h)), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.linear = nn.Linear(features, hidden)

    def forward(self, x):
        h = x @ self.linear.weight.t()
        block = 1024
        epilogue_kernel[(h.shape[0], triton.cdiv(h.shape[1], block))](h, self.linear.bias, h.shape[1], BLOCK=block)
        return h
