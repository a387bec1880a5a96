"""Correct: torch multiplies, Triton adds the bias and applies GELU in one pass."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def bias_gelu_kernel(x_ptr, bias_ptr, out_ptr, count, features, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    x = tl.load(x_ptr + offsets, mask=mask) + tl.load(bias_ptr + offsets % features, mask=mask)
    tl.store(out_ptr + offsets, 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476)), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product = torch.mm(x, self.linear.weight.t())
        out = torch.empty_like(product)
        count = product.numel()
        bias_gelu_kernel[(triton.cdiv(count, 8192),)](
            product, self.linear.bias, out, count, product.shape[1], BLOCK=8192, num_warps=8
        )
        return out
