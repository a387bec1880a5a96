"""Rotary embedding that loads the first half of each row of the tables only: the second repeats it.

problem: rotary_tables
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def turn_kernel(x_ptr, y_ptr, cos_ptr, sin_ptr, rows, length, ROWS: tl.constexpr, HALF: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (row < rows)[:, None]
    pair = tl.arange(0, HALF)
    table = (row % length)[:, None] * (2 * HALF) + pair[None, :]
    cos = tl.load(cos_ptr + table, mask=inside, other=0.0)
    sin = tl.load(sin_ptr + table, mask=inside, other=0.0)
    at = row[:, None] * (2 * HALF) + pair[None, :]
    low = tl.load(x_ptr + at, mask=inside, other=0.0)
    high = tl.load(x_ptr + at + HALF, mask=inside, other=0.0)
    tl.store(y_ptr + at, low * cos - high * sin, mask=inside)
    tl.store(y_ptr + at + HALF, high * cos + low * sin, mask=inside)


class ModelNew(nn.Module):
    def forward(self, query, cos, sin):
        query, cos, sin = query.contiguous(), cos.contiguous(), sin.contiguous()
        length, width = query.shape[-2:]
        rows = query.numel() // width
        output = torch.empty_like(query)
        turn_kernel[(triton.cdiv(rows, 16),)](query, output, cos, sin, rows, length, ROWS=16, HALF=width // 2)
        return output
