"""Group normalisation in three kernels: sums by atomics, squared distances by atomics, and the output.

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
def sum_kernel(x_ptr, sums_ptr, size, BLOCK: tl.constexpr):
    group = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + group.to(tl.int64) * size + at, mask=at < size, other=0.0)
    tl.atomic_add(sums_ptr + group, tl.sum(x, axis=0))


@triton.jit
def spread_kernel(x_ptr, sums_ptr, spread_ptr, size, BLOCK: tl.constexpr):
    group = tl.program_id(0)
    mean = tl.load(sums_ptr + group) / size
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + group.to(tl.int64) * size + at, mask=at < size, other=0.0)
    centred = tl.where(at < size, x - mean, 0.0)
    tl.atomic_add(spread_ptr + group, tl.sum(centred * centred, axis=0))


@triton.jit
def apply_kernel(
    x_ptr, sums_ptr, spread_ptr, w_ptr, b_ptr, y_ptr, groups, per_group, plane, size, eps, BLOCK: tl.constexpr
):
    group = tl.program_id(0)
    mean = tl.load(sums_ptr + group) / size
    scale = tl.rsqrt(tl.load(spread_ptr + group) / size + eps)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    channel = group % groups * per_group + at // plane
    base = group.to(tl.int64) * size
    x = tl.load(x_ptr + base + at, mask=inside, other=0.0)
    w = tl.load(w_ptr + channel, mask=inside, other=0.0)
    b = tl.load(b_ptr + channel, mask=inside, other=0.0)
    tl.store(y_ptr + base + at, (x - mean) * scale * w + b, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        self.accumulators = None

    def forward(self, x):
        x = x.contiguous()
        batch, channels, height, width = x.shape
        norm, plane = self.norm, height * width
        per_group = channels // norm.num_groups
        size, count = per_group * plane, batch * norm.num_groups
        if self.accumulators is None or self.accumulators.shape != (2, count):
            self.accumulators = torch.empty(2, count, device=x.device)
        self.accumulators.zero_()
        sums, spread = self.accumulators
        y = torch.empty_like(x)
        block = min(4096, triton.next_power_of_2(size))
        grid = (count, triton.cdiv(size, block))
        sum_kernel[grid](x, sums, size, BLOCK=block)
        spread_kernel[grid](x, sums, spread, size, BLOCK=block)
        apply_kernel[grid](
            x, sums, spread, norm.weight, norm.bias, y, norm.num_groups, per_group, plane, size, norm.eps, BLOCK=block
        )
        return y
