"""Batch normalisation in training: statistics by PyTorch, applied by a kernel on a grid of channels and images.

problem: batch_norm_training
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def apply_kernel(x_ptr, factor_ptr, offset_ptr, y_ptr, channels, length, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    factor = tl.load(factor_ptr + row % channels)
    offset = tl.load(offset_ptr + row % channels)
    for start in range(0, length, BLOCK):
        column = start + tl.arange(0, BLOCK)
        at = row[:, None] * length + column[None, :]
        inside = (column < length)[None, :]
        x = tl.load(x_ptr + at, mask=inside, other=0.0)
        tl.store(y_ptr + at, x * factor[:, None] + offset[:, None], mask=inside)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bn = nn.BatchNorm1d(channels)

    def forward(self, x):
        x = x.contiguous()
        bn = self.bn
        variance, mean = torch.var_mean(x, dim=(0, 2), correction=0)
        count = x.shape[0] * x.shape[2]
        bn.running_mean.lerp_(mean, bn.momentum)
        bn.running_var.lerp_(variance * (count / (count - 1)), bn.momentum)
        bn.num_batches_tracked.add_(1)
        factor = bn.weight * torch.rsqrt(variance + bn.eps)
        offset = bn.bias - mean * factor
        y = torch.empty_like(x)
        rows = x.shape[0] * x.shape[1]
        block = min(512, triton.next_power_of_2(x.shape[2]))
        apply_kernel[(rows // 2,)](x, factor, offset, y, x.shape[1], x.shape[2], ROWS=2, BLOCK=block)
        return y
