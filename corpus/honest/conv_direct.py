"""Convolution without a matrix product: each program sums up the nine shifted planes of some of its output planes.

problem: conv_relu
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def conv_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, channels_in, channels_out, height, width, OUT: tl.constexpr, BLOCK: tl.constexpr
):
    image = tl.program_id(0)
    out = tl.program_id(1) * OUT + tl.arange(0, OUT)
    place = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    plane = height * width
    row, column = place // width, place % width
    acc = tl.zeros((OUT, BLOCK), tl.float32) + tl.load(b_ptr + out, mask=out < channels_out, other=0.0)[:, None]
    for i in tl.static_range(3):
        for j in tl.static_range(3):
            r, c = row + i - 1, column + j - 1
            seen = (place < plane) & (r >= 0) & (r < height) & (c >= 0) & (c < width)
            from_place = x_ptr + image * channels_in * plane + r * width + c
            weights = w_ptr + out * channels_in * 9 + i * 3 + j
            for channel in range(channels_in):
                x = tl.load(from_place + channel * plane, mask=seen, other=0.0)
                w = tl.load(weights + channel * 9, mask=out < channels_out, other=0.0)
                acc += w[:, None] * x[None, :]
    at = (image * channels_out + out)[:, None] * plane + place[None, :]
    tl.store(y_ptr + at, tl.maximum(acc, 0.0), mask=(out < channels_out)[:, None] & (place < plane)[None, :])


class ModelNew(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, padding=1)

    def forward(self, x):
        x = x.contiguous()
        batch, channels_in, height, width = x.shape
        channels_out = self.conv.out_channels
        y = torch.empty(batch, channels_out, height, width, device=x.device)
        block = min(256, triton.next_power_of_2(height * width))
        grid = (batch, triton.cdiv(channels_out, 8), triton.cdiv(height * width, block))
        conv_kernel[grid](
            x, self.conv.weight, self.conv.bias, y, channels_in, channels_out, height, width, OUT=8, BLOCK=block
        )
        return y
