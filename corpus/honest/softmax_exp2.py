"""Softmax by powers of two, which the hardware computes directly, after the maximum was subtracted.

problem: rows_softmax
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x_ptr, y_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    at = row[:, None] * columns + column[None, :]
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    x = tl.load(x_ptr + at, mask=inside, other=-float("inf"))
    top = tl.max(x, axis=1)
    top = tl.where(row < rows, top, 0.0)
    e = tl.exp2((x - top[:, None]) * 1.4426950408889634)
    reciprocal = 1.0 / tl.sum(e, axis=1)
    tl.store(y_ptr + at, e * reciprocal[:, None], mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        block = triton.next_power_of_2(columns)
        softmax_kernel[(triton.cdiv(rows, 2),)](x, y, rows, columns, ROWS=2, COLUMNS=block, num_warps=8)
        return y
