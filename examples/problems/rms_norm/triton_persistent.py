"""Correct: eight programs that keep the weight in registers and walk over all rows."""

import torch
import triton
import triton.language as tl
from torch import nn

PROGRAMS = 8


@triton.jit
def rms_norm_kernel(
    x_ptr,
    weight_ptr,
    out_ptr,
    rows,
    features,
    eps,
    PROGRAMS: tl.constexpr,
    ROWS: tl.constexpr,
    FEATURES: tl.constexpr,
):
    feature = tl.arange(0, FEATURES)
    inside = feature < features
    weight = tl.load(weight_ptr + feature, mask=inside)
    begin = tl.program_id(0) * ROWS
    for start in range(begin, rows, PROGRAMS * ROWS):
        row = start + tl.arange(0, ROWS)
        offsets = row[:, None] * features + feature[None, :]
        mask = (row < rows)[:, None] & inside[None, :]
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
        scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=1) / features + eps)
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
        rms_norm_kernel[(PROGRAMS,)](
            x,
            self.weight,
            out,
            rows,
            features,
            self.eps,
            PROGRAMS=PROGRAMS,
            ROWS=16,
            FEATURES=block,
            num_warps=8,
        )
        return out
