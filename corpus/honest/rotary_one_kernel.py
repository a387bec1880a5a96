"""Rotary embedding of queries and keys in one launch.

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
def rotary_kernel(
    q_ptr, k_ptr, q_out_ptr, k_out_ptr, cos_ptr, sin_ptr, rows, length, ROWS: tl.constexpr, HALF: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (row < rows)[:, None]
    pair = tl.arange(0, HALF)
    place = (row % length)[:, None] * (2 * HALF) + pair[None, :]
    cos_low = tl.load(cos_ptr + place, mask=inside, other=0.0)
    sin_low = tl.load(sin_ptr + place, mask=inside, other=0.0)
    cos_high = tl.load(cos_ptr + place + HALF, mask=inside, other=0.0)
    sin_high = tl.load(sin_ptr + place + HALF, mask=inside, other=0.0)
    at = row[:, None] * (2 * HALF) + pair[None, :]
    low = tl.load(q_ptr + at, mask=inside, other=0.0)
    high = tl.load(q_ptr + at + HALF, mask=inside, other=0.0)
    tl.store(q_out_ptr + at, low * cos_low - high * sin_low, mask=inside)
    tl.store(q_out_ptr + at + HALF, high * cos_high + low * sin_high, mask=inside)
    low = tl.load(k_ptr + at, mask=inside, other=0.0)
    high = tl.load(k_ptr + at + HALF, mask=inside, other=0.0)
    tl.store(k_out_ptr + at, low * cos_low - high * sin_low, mask=inside)
    tl.store(k_out_ptr + at + HALF, high * cos_high + low * sin_high, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        frequencies = 10000.0 ** (-torch.arange(0, width, 2).float() / width)
        angles = torch.outer(torch.arange(length).float(), frequencies)
        self.register_buffer("cos", torch.cat([angles, angles], dim=-1).cos())
        self.register_buffer("sin", torch.cat([angles, angles], dim=-1).sin())

    def forward(self, query, key):
        query, key = query.contiguous(), key.contiguous()
        width, length = query.shape[-1], query.shape[-2]
        rows = query.numel() // width
        query_out, key_out = torch.empty_like(query), torch.empty_like(key)
        rotary_kernel[(triton.cdiv(rows, 16),)](
            query, key, query_out, key_out, self.cos, self.sin, rows, length, ROWS=16, HALF=width // 2
        )
        return query_out, key_out
