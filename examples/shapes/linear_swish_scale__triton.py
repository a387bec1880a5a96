"""Correct: product, bias, swish and scale in one kernel, in single precision."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def linear_swish_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, m, n, k, scale, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        inner = start + tl.arange(0, BK)
        x_mask = (row < m)[:, None] & (inner < k)[None, :]
        w_mask = (inner < k)[:, None] & (column < n)[None, :]
        x = tl.load(x_ptr + row[:, None] * k + inner[None, :], mask=x_mask, other=0.0)
        w = tl.load(weight_ptr + column[None, :] * k + inner[:, None], mask=w_mask, other=0.0)
        total += tl.dot(x, w, input_precision="ieee")
    total += tl.load(bias_ptr + column, mask=column < n, other=0.0)[None, :]
    out = total * tl.sigmoid(total) * scale
    tl.store(out_ptr + row[:, None] * n + column[None, :], out, mask=(row < m)[:, None] & (column < n)[None, :])


class ModelNew(nn.Module):
    def __init__(self, in_features: int, out_features: int, scale: float) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        weight, bias = self.linear.weight, self.linear.bias
        (m, k), n = x.shape, weight.shape[0]
        out = torch.empty(m, n, device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(m, 64), triton.cdiv(n, 64))
        linear_swish_kernel[grid](x, weight, bias, out, m, n, k, self.scale, BM=64, BN=64, BK=32)
        return out
