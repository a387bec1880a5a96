"""Frozen batch normalisation and ReLU, with statistics and parameters folded into a factor and an offset at the first call.

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
def affine_relu_kernel(x_ptr, factor_ptr, offset_ptr, y_ptr, channels, plane, BLOCK: tl.constexpr):
    which = tl.program_id(0)
    factor = tl.load(factor_ptr + which % channels)
    offset = tl.load(offset_ptr + which % channels)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    base = which.to(tl.int64) * plane
    x = tl.load(x_ptr + base + at, mask=at < plane, other=0.0)
    tl.store(y_ptr + base + at, tl.maximum(x * factor + offset, 0.0), mask=at < plane)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bn = nn.BatchNorm2d(channels).eval()
        self.folded = None

    def _fold(self):
        factor = self.bn.weight.detach() * torch.rsqrt(self.bn.running_var + self.bn.eps)
        return factor, self.bn.bias.detach() - self.bn.running_mean * factor

    def forward(self, x):
        if self.folded is None:
            self.folded = self._fold()
        x = x.contiguous()
        batch, channels, height, width = x.shape
        plane = height * width
        y = torch.empty_like(x)
        block = min(1024, triton.next_power_of_2(plane))
        affine_relu_kernel[(batch * channels, triton.cdiv(plane, block))](
            x, *self.folded, y, channels, plane, BLOCK=block
        )
        return y
