"""Sum of two bfloat16 tensors and layer normalisation in one kernel, with float32 inside.

problem: layer_norm_bfloat16
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def add_layer_norm_kernel(x_ptr, r_ptr, w_ptr, b_ptr, y_ptr, features, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * features
    at = tl.arange(0, BLOCK)
    inside = at < features
    x = tl.load(x_ptr + row + at, mask=inside, other=0.0).to(tl.float32)
    x += tl.load(r_ptr + row + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / features
    centred = tl.where(inside, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / features + eps)
    w = tl.load(w_ptr + at, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + row + at, (centred * scale * w + b).to(tl.bfloat16), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features, dtype=torch.bfloat16)

    def forward(self, x, residual):
        x, residual = x.contiguous(), residual.contiguous()
        features = x.shape[-1]
        y = torch.empty_like(x)
        add_layer_norm_kernel[(x.numel() // features,)](
            x,
            residual,
            self.norm.weight,
            self.norm.bias,
            y,
            features,
            self.norm.eps,
            BLOCK=triton.next_power_of_2(features),
            num_warps=8,
        )
        return y
