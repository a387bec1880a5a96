"""Correct: several whole rows per program."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, rows, features, eps, ROWS: tl.constexpr, FEATURES: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    feature = tl.arange(0, FEATURES)
    offsets = row[:, None] * features + feature[None, :]
    mask = (row < rows)[:, None] & (feature < features)[None, :]
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    scale = tl.rsqrt(tl.sum(x * x, axis=1) / features + eps)
    weight = tl.load(weight_ptr + feature, mask=feature < features)
    tl.store(out_ptr + offsets, x * scale[:, None] * weight[None, :], mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, features = x.shape
        out = torch.empty_like(x)
        block = triton.next_power_of_2(features)
        rms_norm_kernel[(triton.cdiv(rows, 32),)](
            x, self.weight, out, rows, features, self.eps, ROWS=32, FEATURES=block, num_warps=8
        )
        return out
