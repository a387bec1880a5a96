"""Rotary embedding, one launch each for queries and keys; only the half of the tables that is not repeated is kept.

problem: rotary_embedding
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rotary_kernel(x_ptr, y_ptr, cos_ptr, sin_ptr, count, length, HALF: tl.constexpr, BLOCK: tl.constexpr):
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = pair < count
    row = pair // HALF
    place = row % length * HALF + pair % HALF
    cos = tl.load(cos_ptr + place, mask=inside, other=0.0)
    sin = tl.load(sin_ptr + place, mask=inside, other=0.0)
    at = row * (2 * HALF) + pair % HALF
    low = tl.load(x_ptr + at, mask=inside, other=0.0)
    high = tl.load(x_ptr + at + HALF, mask=inside, other=0.0)
    tl.store(y_ptr + at, low * cos - high * sin, mask=inside)
    tl.store(y_ptr + at + HALF, high * cos + low * sin, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        self.half = width // 2
        frequencies = 10000.0 ** (-torch.arange(0, width, 2).float() / width)
        angles = torch.outer(torch.arange(length).float(), frequencies)
        self.register_buffer("half_cos", angles.cos(), persistent=False)
        self.register_buffer("half_sin", angles.sin(), persistent=False)

    def _turn(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        count = x.numel() // 2
        rotary_kernel[(triton.cdiv(count, 512),)](
            x, y, self.half_cos, self.half_sin, count, x.shape[-2], HALF=self.half, BLOCK=512
        )
        return y

    def forward(self, query, key):
        return self._turn(query), self._turn(key)
