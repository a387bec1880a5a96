"""Layer normalisation by a module of its own, whose parameters have the names of nn.LayerNorm's.

problem: affine_layer_norm
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, rows, features, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    at = row[:, None] * features + column[None, :]
    inside = (row < rows)[:, None] & (column < features)[None, :]
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    mean = tl.sum(x, axis=1) / features
    centred = tl.where(inside, x - mean[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=1) / features + eps)
    w = tl.load(w_ptr + column, mask=column < features, other=0.0)
    b = tl.load(b_ptr + column, mask=column < features, other=0.0)
    tl.store(y_ptr + at, centred * scale[:, None] * w[None, :] + b[None, :], mask=inside)


class TritonLayerNorm(nn.Module):
    def __init__(self, features, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        features = x.shape[-1]
        rows = x.numel() // features
        y = torch.empty_like(x)
        block = triton.next_power_of_2(features)
        layer_norm_kernel[(triton.cdiv(rows, 2),)](
            x, self.weight, self.bias, y, rows, features, self.eps, ROWS=2, BLOCK=block, num_warps=8
        )
        return y


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = TritonLayerNorm(features)

    def forward(self, x):
        return self.norm(x)
