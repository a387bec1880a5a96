"""A LayerNorm with the variance over N - 1.

It shows in every row, by a factor of one over twice its length.

problem: layer_norm_narrow
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def layer_norm_row(x_ptr, weight_ptr, bias_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    apart = tl.where(inside, x - mean, 0.0)
    variance = tl.sum(apart * apart, axis=0) / (columns - 1)
    scale = tl.rsqrt(variance + 1e-5)
    weight = tl.load(weight_ptr + at, mask=inside, other=0.0)
    bias = tl.load(bias_ptr + at, mask=inside, other=0.0)
    tl.store(out_ptr + row * columns + at, apart * scale * weight + bias, mask=at < columns)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        out = torch.empty_like(x)
        layer_norm_row[(x.shape[0],)](
            x,
            self.norm.weight,
            self.norm.bias,
            out,
            x.shape[1],
            BLOCK=triton.next_power_of_2(x.shape[1]),
        )
        return out
