"""Does not compile: calls tl.dot with shapes that do not fit."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def linear_gelu_kernel(x_ptr, weight_ptr, out_ptr, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        inner = start + tl.arange(0, BK)
        x = tl.load(x_ptr + row[:, None] * k + inner[None, :])
        w = tl.load(weight_ptr + column[:, None] * k + inner[None, :])
        total += tl.dot(x, w, input_precision="ieee")
    tl.store(out_ptr + row[:, None] * n + column[None, :], total)


class ModelNew(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.linear.weight
        (m, k), n = x.shape, weight.shape[0]
        out = torch.empty(m, n, device=x.device, dtype=x.dtype)
        linear_gelu_kernel[(m // 64, n // 64)](x, weight, out, n, k, BM=64, BN=64, BK=32)
        return out
