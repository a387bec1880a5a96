"""S11: queries and keys are turned in place, in the caller's own memory, which saves the copies.

problem: rotary_embedding
backend: triton
outcome: INCORRECT, REJECTED
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def turn_kernel(x_ptr, cos_ptr, sin_ptr, length, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    half = tl.arange(0, WIDTH // 2)
    angle = row % length * WIDTH + half
    low, high = tl.load(x_ptr + row * WIDTH + half), tl.load(x_ptr + row * WIDTH + WIDTH // 2 + half)
    first = low * tl.load(cos_ptr + angle) - high * tl.load(sin_ptr + angle)
    second = high * tl.load(cos_ptr + angle + WIDTH // 2) + low * tl.load(sin_ptr + angle + WIDTH // 2)
    tl.store(x_ptr + row * WIDTH + half, first)
    tl.store(x_ptr + row * WIDTH + WIDTH // 2 + half, second)


class ModelNew(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        frequencies = 10000.0 ** (-torch.arange(0, width, 2).float() / width)
        angles = torch.outer(torch.arange(length).float(), frequencies)
        self.register_buffer("cos", torch.cat([angles, angles], dim=-1).cos())
        self.register_buffer("sin", torch.cat([angles, angles], dim=-1).sin())

    def _turn(self, x):
        rows = x.numel() // x.shape[-1]
        turn_kernel[(rows,)](x, self.cos, self.sin, x.shape[-2], WIDTH=x.shape[-1], num_warps=1)
        return x

    def forward(self, query, key):
        return self._turn(query), self._turn(key)
