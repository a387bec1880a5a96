"""Correct: torch convolves without bias, Triton adds both biases around ReLU in one pass."""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F


@triton.jit
def epilogue_kernel(x_ptr, conv_bias_ptr, bias_ptr, out_ptr, channels, pixels, BLOCK: tl.constexpr):
    plane = tl.program_id(1)
    channel = plane % channels
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = pixel < pixels
    x = tl.load(x_ptr + plane * pixels + pixel, mask=mask) + tl.load(conv_bias_ptr + channel)
    tl.store(out_ptr + plane * pixels + pixel, tl.maximum(x, 0.0) + tl.load(bias_ptr + channel), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product = F.conv2d(x, self.conv.weight).contiguous()
        batch, channels, pixels = product.shape[0], product.shape[1], product.shape[2] * product.shape[3]
        out = torch.empty_like(product)
        grid = (triton.cdiv(pixels, 4096), batch * channels)
        epilogue_kernel[grid](product, self.conv.bias, self.bias, out, channels, pixels, BLOCK=4096)
        return out
