"""Correct: torch convolves, Triton applies ReLU in place on the fresh result."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def relu_kernel(x_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    tl.store(x_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, kernel, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.conv(x).contiguous()
        count = out.numel()
        relu_kernel[(triton.cdiv(count, 2048),)](out, count, BLOCK=2048)
        return out
