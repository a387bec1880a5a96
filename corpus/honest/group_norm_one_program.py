"""Group normalisation, one program for each group of an image: mean, spread, then the output.

problem: image_group_norm
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def group_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, groups, per_group, plane, eps, BLOCK: tl.constexpr):
    which = tl.program_id(0)
    size = per_group * plane
    base = which.to(tl.int64) * size
    first = which % groups * per_group
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        at = start + lanes
        total += tl.load(x_ptr + base + at, mask=at < size, other=0.0)
    mean = tl.sum(total, axis=0) / size
    spread = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        at = start + lanes
        centred = tl.where(at < size, tl.load(x_ptr + base + at, mask=at < size, other=0.0) - mean, 0.0)
        spread += centred * centred
    scale = tl.rsqrt(tl.sum(spread, axis=0) / size + eps)
    for start in range(0, size, BLOCK):
        at = start + lanes
        inside = at < size
        channel = first + at // plane
        x = tl.load(x_ptr + base + at, mask=inside, other=0.0)
        w = tl.load(w_ptr + channel, mask=inside, other=0.0)
        b = tl.load(b_ptr + channel, mask=inside, other=0.0)
        tl.store(y_ptr + base + at, (x - mean) * scale * w + b, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        x = x.contiguous()
        batch, channels, height, width = x.shape
        groups = self.norm.num_groups
        y = torch.empty_like(x)
        group_norm_kernel[(batch * groups,)](
            x,
            self.norm.weight,
            self.norm.bias,
            y,
            groups,
            channels // groups,
            height * width,
            self.norm.eps,
            BLOCK=min(4096, triton.next_power_of_2(channels // groups * height * width)),
            num_warps=8,
        )
        return y
