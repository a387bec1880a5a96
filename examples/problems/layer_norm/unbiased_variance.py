"""Wrong by a two-thousandth: divides the variance by n - 1 instead of n."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def layer_norm_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, features, eps, ROWS: tl.constexpr, FEATURES: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    feature = tl.arange(0, FEATURES)
    offsets = row[:, None] * features + feature[None, :]
    x = tl.load(x_ptr + offsets)
    centred = x - (tl.sum(x, axis=1) / features)[:, None]
    variance = tl.sum(centred * centred, axis=1) / (features - 1)
    weight = tl.load(weight_ptr + feature)[None, :]
    bias = tl.load(bias_ptr + feature)[None, :]
    tl.store(out_ptr + offsets, centred * tl.rsqrt(variance + eps)[:, None] * weight + bias)


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, features = x.shape
        out = torch.empty_like(x)
        norm = self.norm
        layer_norm_kernel[(rows // 16,)](
            x, norm.weight, norm.bias, out, features, norm.eps, ROWS=16, FEATURES=1024, num_warps=8
        )
        return out
