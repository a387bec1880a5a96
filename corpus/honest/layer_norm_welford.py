"""Layer normalisation in one pass over the row for the statistics, by Welford's method lane by lane.

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
    x_ptr += row * features
    y_ptr += row * features
    lanes = tl.arange(0, BLOCK)
    count = tl.zeros((BLOCK,), tl.float32)
    mean = tl.zeros((BLOCK,), tl.float32)
    spread = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, features, BLOCK):
        at = start + lanes
        inside = at < features
        x = tl.load(x_ptr + at, mask=inside, other=0.0)
        count += inside.to(tl.float32)
        delta = tl.where(inside, x - mean, 0.0)
        mean += delta / tl.maximum(count, 1.0)
        spread += delta * tl.where(inside, x - mean, 0.0)
    # Lanes have seen different numbers of elements: weigh them.
    whole = tl.sum(mean * count, axis=0) / features
    away = mean - whole
    variance = tl.sum(spread + count * away * away, axis=0) / features
    scale = tl.rsqrt(variance + eps)
    for start in range(0, features, BLOCK):
        at = start + lanes
        inside = at < features
        x = tl.load(x_ptr + at, mask=inside, other=0.0)
        w = tl.load(w_ptr + at, mask=inside, other=0.0)
        b = tl.load(b_ptr + at, mask=inside, other=0.0)
        tl.store(y_ptr + at, (x - whole) * scale * w + b, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        x = x.contiguous()
        features = x.shape[-1]
        y = torch.empty_like(x)
        block = min(1024, triton.next_power_of_2(features) // 2)
        layer_norm_kernel[(x.numel() // features,)](
            x, self.norm.weight, self.norm.bias, y, features, self.norm.eps, BLOCK=block
        )
        return y
