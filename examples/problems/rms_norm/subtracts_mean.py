"""Wrong: subtracts the mean first, as layer normalisation would."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, features, eps, ROWS: tl.constexpr, FEATURES: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    feature = tl.arange(0, FEATURES)
    offsets = row[:, None] * features + feature[None, :]
    x = tl.load(x_ptr + offsets)
    x = x - (tl.sum(x, axis=1) / features)[:, None]
    scale = tl.rsqrt(tl.sum(x * x, axis=1) / features + eps)
    weight = tl.load(weight_ptr + feature)
    tl.store(out_ptr + offsets, x * scale[:, None] * weight[None, :])


class ModelNew(nn.Module):
    def __init__(self, features: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, features = x.shape
        out = torch.empty_like(x)
        rms_norm_kernel[(rows // 32,)](x, self.weight, out, features, self.eps, ROWS=32, FEATURES=512, num_warps=8)
        return out
