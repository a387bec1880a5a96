"""Correct: one channel of one image per program, kept in registers."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def instance_norm_kernel(x_ptr, out_ptr, pixels, eps, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    pixel = tl.arange(0, BLOCK)
    mask = pixel < pixels
    x = tl.load(x_ptr + plane * pixels + pixel, mask=mask, other=0.0)
    centred = tl.where(mask, x - tl.sum(x, axis=0) / pixels, 0.0)
    variance = tl.sum(centred * centred, axis=0) / pixels
    tl.store(out_ptr + plane * pixels + pixel, centred / tl.sqrt(variance + eps), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.eps = 1e-5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        planes, pixels = x.shape[0] * x.shape[1], x.shape[2] * x.shape[3]
        out = torch.empty_like(x)
        block = triton.next_power_of_2(pixels)
        instance_norm_kernel[(planes,)](x, out, pixels, self.eps, BLOCK=block, num_warps=16)
        return out
