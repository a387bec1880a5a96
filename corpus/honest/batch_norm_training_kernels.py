"""Batch normalisation in training: one kernel for the statistics of each channel, which also keeps the running ones.

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
def statistics_kernel(
    x_ptr, stats_ptr, running_mean_ptr, running_var_ptr, batch, channels, length, eps, momentum, BLOCK: tl.constexpr
):
    channel = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for image in range(batch):
        for start in range(0, length, BLOCK):
            at = start + lanes
            total += tl.load(x_ptr + (image * channels + channel) * length + at, mask=at < length, other=0.0)
    count = batch * length
    mean = tl.sum(total, axis=0) / count
    spread = tl.zeros((BLOCK,), tl.float32)
    for image in range(batch):
        for start in range(0, length, BLOCK):
            at = start + lanes
            x = tl.load(x_ptr + (image * channels + channel) * length + at, mask=at < length, other=0.0)
            centred = tl.where(at < length, x - mean, 0.0)
            spread += centred * centred
    squares = tl.sum(spread, axis=0)
    tl.store(stats_ptr + channel, mean)
    tl.store(stats_ptr + channels + channel, tl.rsqrt(squares / count + eps))
    old_mean = tl.load(running_mean_ptr + channel)
    old_var = tl.load(running_var_ptr + channel)
    tl.store(running_mean_ptr + channel, old_mean + momentum * (mean - old_mean))
    tl.store(running_var_ptr + channel, old_var + momentum * (squares / (count - 1) - old_var))


@triton.jit
def apply_kernel(x_ptr, stats_ptr, w_ptr, b_ptr, y_ptr, count, channels, length, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    channel = at // length % channels
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    mean = tl.load(stats_ptr + channel, mask=inside, other=0.0)
    scale = tl.load(stats_ptr + channels + channel, mask=inside, other=0.0)
    w = tl.load(w_ptr + channel, mask=inside, other=0.0)
    b = tl.load(b_ptr + channel, mask=inside, other=0.0)
    tl.store(y_ptr + at, (x - mean) * scale * w + b, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bn = nn.BatchNorm1d(channels)

    def forward(self, x):
        x = x.contiguous()
        bn = self.bn
        batch, channels, length = x.shape
        stats = torch.empty(2, channels, device=x.device)
        y = torch.empty_like(x)
        block = min(1024, triton.next_power_of_2(length))
        statistics_kernel[(channels,)](
            x, stats, bn.running_mean, bn.running_var, batch, channels, length, bn.eps, bn.momentum, BLOCK=block
        )
        bn.num_batches_tracked.add_(1)
        apply_kernel[(triton.cdiv(x.numel(), 1024),)](
            x, stats, bn.weight, bn.bias, y, x.numel(), channels, length, BLOCK=1024
        )
        return y
