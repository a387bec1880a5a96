"""Convolution as a matrix product whose left operand is gathered from the image, with bias and ReLU.

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
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    places,
    channels_in,
    channels_out,
    height,
    width,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    place = tl.program_id(0) * BM + tl.arange(0, BM)
    out = tl.program_id(1) * BN + tl.arange(0, BN)
    plane = height * width
    image, row, column = place // plane, place % plane // width, place % width
    inner = channels_in * 9
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, inner, BK):
        k = start + tl.arange(0, BK)
        channel, i, j = k // 9, k % 9 // 3 - 1, k % 3 - 1
        r = row[:, None] + i[None, :]
        c = column[:, None] + j[None, :]
        seen = (place < places)[:, None] & (k < inner)[None, :] & (r >= 0) & (r < height) & (c >= 0) & (c < width)
        at = (image[:, None] * channels_in + channel[None, :]) * plane + r * width + c
        x = tl.load(x_ptr + at, mask=seen, other=0.0)
        w = tl.load(
            w_ptr + out[None, :] * inner + k[:, None],
            mask=(out < channels_out)[None, :] & (k < inner)[:, None],
            other=0.0,
        )
        acc = tl.dot(x, w, acc, input_precision="ieee")
    acc += tl.load(b_ptr + out, mask=out < channels_out, other=0.0)[None, :]
    at = (image[:, None] * channels_out + out[None, :]) * plane + (place % plane)[:, None]
    tl.store(y_ptr + at, tl.maximum(acc, 0.0), mask=(place < places)[:, None] & (out < channels_out)[None, :])


class ModelNew(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, padding=1)

    def forward(self, x):
        x = x.contiguous()
        batch, channels_in, height, width = x.shape
        channels_out = self.conv.out_channels
        y = torch.empty(batch, channels_out, height, width, device=x.device)
        places = batch * height * width
        grid = (triton.cdiv(places, 32), triton.cdiv(channels_out, 32))
        conv_kernel[grid](
            x,
            self.conv.weight,
            self.conv.bias,
            y,
            places,
            channels_in,
            channels_out,
            height,
            width,
            BM=32,
            BN=32,
            BK=32,
        )
        return y
