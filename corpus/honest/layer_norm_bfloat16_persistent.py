"""Sum and layer normalisation by programs that keep scale and shift in registers and walk over rows.

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
def add_layer_norm_kernel(x_ptr, r_ptr, w_ptr, b_ptr, y_ptr, rows, features, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside = column < features
    w = tl.load(w_ptr + column, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + column, mask=inside, other=0.0).to(tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        at = row * features + column
        x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
        x += tl.load(r_ptr + at, mask=inside, other=0.0).to(tl.float32)
        # Rounded to bfloat16 once, as the sum of two such tensors is.
        x = x.to(tl.bfloat16).to(tl.float32)
        mean = tl.sum(x, axis=0) / features
        centred = tl.where(inside, x - mean, 0.0)
        scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / features + eps)
        tl.store(y_ptr + at, (centred * scale * w + b).to(tl.bfloat16), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features, dtype=torch.bfloat16)

    def forward(self, x, residual):
        x, residual = x.contiguous(), residual.contiguous()
        features = x.shape[-1]
        rows = x.numel() // features
        programs = 8 * torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 2
        y = torch.empty_like(x)
        block = triton.next_power_of_2(features)
        add_layer_norm_kernel[(min(rows, programs),)](
            x, residual, self.norm.weight, self.norm.bias, y, rows, features, self.norm.eps, BLOCK=block, num_warps=8
        )
        return y
