"""Correct: statistics in one kernel, scale and shift in another."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, features, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS,), tl.float32)
    for start in range(0, features, BLOCK):
        feature = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row[:, None] * features + feature[None, :], mask=(feature < features)[None, :], other=0.0)
        total += tl.sum(x, axis=1)
    mean = total / features
    squares = tl.zeros((ROWS,), tl.float32)
    for start in range(0, features, BLOCK):
        feature = start + tl.arange(0, BLOCK)
        inside = (feature < features)[None, :]
        x = tl.load(x_ptr + row[:, None] * features + feature[None, :], mask=inside, other=0.0)
        centred = tl.where(inside, x - mean[:, None], 0.0)
        squares += tl.sum(centred * centred, axis=1)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, tl.rsqrt(squares / features + eps))


@triton.jit
def normalise_kernel(
    x_ptr, mean_ptr, rstd_ptr, weight_ptr, bias_ptr, out_ptr, features, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    feature = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = feature < features
    offsets = row[:, None] * features + feature[None, :]
    x = tl.load(x_ptr + offsets, mask=inside[None, :])
    normal = (x - tl.load(mean_ptr + row)[:, None]) * tl.load(rstd_ptr + row)[:, None]
    weight = tl.load(weight_ptr + feature, mask=inside)
    bias = tl.load(bias_ptr + feature, mask=inside)
    tl.store(out_ptr + offsets, normal * weight[None, :] + bias[None, :], mask=inside[None, :])


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, features = x.shape
        assert rows % 32 == 0
        mean = torch.empty(rows, device=x.device)
        rstd = torch.empty(rows, device=x.device)
        out = torch.empty_like(x)
        statistics_kernel[(rows // 32,)](x, mean, rstd, features, self.norm.eps, ROWS=32, BLOCK=256)
        normalise_kernel[(rows // 32, triton.cdiv(features, 512))](
            x, mean, rstd, self.norm.weight, self.norm.bias, out, features, ROWS=32, BLOCK=512, num_warps=8
        )
        return out
