"""Correct: one group of one image per program, which walks over it three times."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def group_norm_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, groups, group_channels, pixels, eps, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    group = program % groups
    size = group_channels * pixels
    x_ptr += program.to(tl.int64) * size
    out_ptr += program.to(tl.int64) * size
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + offsets, mask=offsets < size, other=0.0)
    mean = tl.sum(total, axis=0) / size
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < size
        centred = tl.where(mask, tl.load(x_ptr + offsets, mask=mask, other=0.0) - mean, 0.0)
        squares += centred * centred
    rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / size + eps)
    for start in range(0, size, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < size
        channel = group * group_channels + offsets // pixels
        x = tl.load(x_ptr + offsets, mask=mask)
        weight = tl.load(weight_ptr + channel, mask=mask)
        bias = tl.load(bias_ptr + channel, mask=mask)
        tl.store(out_ptr + offsets, (x - mean) * rstd * weight + bias, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        norm = self.norm
        batch, channels, pixels = x.shape[0], x.shape[1], x.shape[2] * x.shape[3]
        groups = norm.num_groups
        out = torch.empty_like(x)
        group_norm_kernel[(batch * groups,)](
            x, norm.weight, norm.bias, out, groups, channels // groups, pixels, norm.eps, BLOCK=4096, num_warps=8
        )
        return out
