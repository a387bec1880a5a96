"""Correct: several whole rows per program; mean and variance from registers."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, rows, features, eps, ROWS: tl.constexpr, FEATURES: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    feature = tl.arange(0, FEATURES)
    offsets = row[:, None] * features + feature[None, :]
    inside = (feature < features)[None, :]
    mask = (row < rows)[:, None] & inside
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    mean = tl.sum(x, axis=1) / features
    centred = tl.where(inside, x - mean[:, None], 0.0)
    variance = tl.sum(centred * centred, axis=1) / features
    weight = tl.load(weight_ptr + feature, mask=feature < features)
    bias = tl.load(bias_ptr + feature, mask=feature < features)
    normal = centred * tl.rsqrt(variance + eps)[:, None]
    tl.store(out_ptr + offsets, normal * weight[None, :] + bias[None, :], mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, features = x.shape
        out = torch.empty_like(x)
        layer_norm_kernel[(triton.cdiv(rows, 16),)](
            x,
            self.norm.weight,
            self.norm.bias,
            out,
            rows,
            features,
            self.norm.eps,
            ROWS=16,
            FEATURES=triton.next_power_of_2(features),
            num_warps=8,
        )
        return out
