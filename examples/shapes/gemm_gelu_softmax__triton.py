"""Correct: torch multiplies, Triton adds the bias and applies GELU and softmax to a whole row per program."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def gelu_softmax_kernel(x_ptr, bias_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0)
    x += tl.load(bias_ptr + column, mask=mask, other=0.0)
    x = tl.where(mask, 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476)), -float("inf"))
    numerator = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * columns + column, numerator / tl.sum(numerator, axis=0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product = torch.mm(x, self.linear.weight.t())
        rows, columns = product.shape
        out = torch.empty_like(product)
        block = triton.next_power_of_2(columns)
        gelu_softmax_kernel[(rows,)](product, self.linear.bias, out, columns, BLOCK=block, num_warps=8)
        return out
