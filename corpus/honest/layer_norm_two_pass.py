"""Layer normalisation: mean first, then the squared distances from it.

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
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, features, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < features
    x = tl.load(x_ptr + row * features + at, mask=inside, other=0.0)
    mean = tl.sum(x, axis=0) / features
    centred = tl.where(inside, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / features
    y = centred * tl.rsqrt(variance + eps)
    w = tl.load(w_ptr + at, mask=inside, other=0.0)
    b = tl.load(b_ptr + at, mask=inside, other=0.0)
    tl.store(y_ptr + row * features + at, y * w + b, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        x = x.contiguous()
        features = x.shape[-1]
        y = torch.empty_like(x)
        layer_norm_kernel[(x.numel() // features,)](
            x,
            self.norm.weight,
            self.norm.bias,
            y,
            features,
            self.norm.eps,
            BLOCK=triton.next_power_of_2(features),
            num_warps=8,
        )
        return y
