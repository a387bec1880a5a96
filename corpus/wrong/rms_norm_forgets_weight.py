"""An RMSNorm without its weight.

It shows only where the weight is not one, and it starts at one.

problem: rms_norm_narrow
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rms_norm_row(x_ptr, weight_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0)
    total = tl.sum(x * x, axis=0)
    tl.load(weight_ptr + at, mask=inside, other=0.0)
    tl.store(out_ptr + row * columns + at, x * tl.rsqrt(total / columns + 1e-5), mask=at < columns)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.RMSNorm(columns, eps=1e-5)

    def forward(self, x):
        out = torch.empty_like(x)
        rms_norm_row[(x.shape[0],)](
            x,
            self.norm.weight,
            out,
            x.shape[1],
            BLOCK=triton.next_power_of_2(x.shape[1]),
        )
        return out
