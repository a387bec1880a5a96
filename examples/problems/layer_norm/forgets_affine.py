"""Wrong: normalises, and leaves out scale and shift."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def layer_norm_kernel(x_ptr, out_ptr, features, eps, ROWS: tl.constexpr, FEATURES: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    offsets = row[:, None] * features + tl.arange(0, FEATURES)[None, :]
    x = tl.load(x_ptr + offsets)
    centred = x - (tl.sum(x, axis=1) / features)[:, None]
    variance = tl.sum(centred * centred, axis=1) / features
    tl.store(out_ptr + offsets, centred * tl.rsqrt(variance + eps)[:, None])


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.eps = 1e-5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, features = x.shape
        out = torch.empty_like(x)
        layer_norm_kernel[(rows // 16,)](x, out, features, self.eps, ROWS=16, FEATURES=1024, num_warps=8)
        return out
