"""Convolution of images with channels last: the weight is packed at the first call, the output is a permuted view.

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
    packed_ptr,
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
    row, column = place // width % height, place % width
    acc = tl.zeros((BM, BN), tl.float32)
    for tap in range(9):
        i, j = tap // 3 - 1, tap % 3 - 1
        seen = (place < places) & (row + i >= 0) & (row + i < height) & (column + j >= 0) & (column + j < width)
        from_place = place + i * width + j
        for start in range(0, channels_in, BK):
            k = start + tl.arange(0, BK)
            x = tl.load(
                x_ptr + from_place[:, None] * channels_in + k[None, :],
                mask=seen[:, None] & (k < channels_in)[None, :],
                other=0.0,
            )
            w = tl.load(
                packed_ptr + (tap * channels_in + k)[:, None] * channels_out + out[None, :],
                mask=(k < channels_in)[:, None] & (out < channels_out)[None, :],
                other=0.0,
            )
            acc = tl.dot(x, w, acc, input_precision="ieee")
    acc += tl.load(b_ptr + out, mask=out < channels_out, other=0.0)[None, :]
    at = place[:, None] * channels_out + out[None, :]
    tl.store(y_ptr + at, tl.maximum(acc, 0.0), mask=(place < places)[:, None] & (out < channels_out)[None, :])


class ModelNew(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, padding=1)
        self.packed = None

    def forward(self, x):
        if self.packed is None:
            self.packed = self.conv.weight.detach().permute(2, 3, 1, 0).contiguous()
        batch, channels_in, height, width = x.shape
        channels_out = self.conv.out_channels
        last = x.permute(0, 2, 3, 1).contiguous()
        y = torch.empty(batch, height, width, channels_out, device=x.device)
        places = batch * height * width
        grid = (triton.cdiv(places, 64), triton.cdiv(channels_out, 32))
        conv_kernel[grid](
            last, self.packed, self.conv.bias, y, places, channels_in, channels_out, height, width, BM=64, BN=32, BK=16
        )
        return y.permute(0, 3, 1, 2)
