"""A GroupNorm that normalises each channel by itself.

It shows wherever the channels of a group differ.

problem: group_norm_learned
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def group_norm(x_ptr, weight_ptr, bias_ptr, out_ptr, members, width, groups, BLOCK: tl.constexpr):
    group = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < members * width
    x = tl.load(x_ptr + group * members * width + at, mask=inside, other=0.0)
    mean = tl.sum(x, axis=0) / (members * width)
    apart = tl.where(inside, x - mean, 0.0)
    variance = tl.sum(apart * apart, axis=0) / (members * width)
    channel = (group % groups) * members + at // width
    weight = tl.load(weight_ptr + channel, mask=inside, other=0.0)
    bias = tl.load(bias_ptr + channel, mask=inside, other=0.0)
    tl.store(out_ptr + group * members * width + at, apart * tl.rsqrt(variance + 1e-5) * weight + bias, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(4, channels)

    def forward(self, x):
        batch, channels, width = x.shape
        groups = channels
        members = channels // groups
        out = torch.empty_like(x)
        group_norm[(batch * groups,)](
            x,
            self.norm.weight,
            self.norm.bias,
            out,
            members,
            width,
            groups,
            BLOCK=triton.next_power_of_2(members * width),
        )
        return out
