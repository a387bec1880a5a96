"""Frozen batch normalisation and ReLU element by element, all four parameters read where they are.

problem: batch_norm_frozen
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def batch_norm_relu_kernel(
    x_ptr, w_ptr, b_ptr, mean_ptr, var_ptr, y_ptr, count, channels, plane, eps, BLOCK: tl.constexpr
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    channel = at // plane % channels
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    mean = tl.load(mean_ptr + channel, mask=inside, other=0.0)
    variance = tl.load(var_ptr + channel, mask=inside, other=1.0)
    w = tl.load(w_ptr + channel, mask=inside, other=0.0)
    b = tl.load(b_ptr + channel, mask=inside, other=0.0)
    y = (x - mean) / tl.sqrt(variance + eps) * w + b
    tl.store(y_ptr + at, tl.maximum(y, 0.0), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bn = nn.BatchNorm2d(channels)
        self.bn.eval()

    def forward(self, x):
        x = x.contiguous()
        bn = self.bn
        y = torch.empty_like(x)
        plane = x.shape[2] * x.shape[3]
        batch_norm_relu_kernel[(triton.cdiv(x.numel(), 512),)](
            x, bn.weight, bn.bias, bn.running_mean, bn.running_var, y, x.numel(), x.shape[1], plane, bn.eps, BLOCK=512
        )
        return y
