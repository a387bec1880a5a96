"""Correct: all channels of a block of pixels per program."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rms_norm_kernel(x_ptr, out_ptr, channels, pixels, eps, CHANNELS: tl.constexpr, BLOCK: tl.constexpr):
    channel = tl.arange(0, CHANNELS)
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    base = tl.program_id(1) * channels * pixels
    mask = (channel < channels)[:, None] & (pixel < pixels)[None, :]
    offsets = base + channel[:, None] * pixels + pixel[None, :]
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    root = tl.sqrt(tl.sum(x * x, axis=0) / channels + eps)
    tl.store(out_ptr + offsets, x / root[None, :], mask=mask)


class ModelNew(nn.Module):
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        batch, channels, pixels = x.shape[0], x.shape[1], x.shape[2] * x.shape[3]
        out = torch.empty_like(x)
        block = triton.next_power_of_2(channels)
        grid = (triton.cdiv(pixels, 128), batch)
        rms_norm_kernel[grid](x, out, channels, pixels, self.eps, CHANNELS=block, BLOCK=128)
        return out
