"""Softmax that takes another kernel for narrow rows, middling rows and wide rows, by shape alone.

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
def narrow_kernel(x_ptr, y_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    at = row[:, None] * columns + column[None, :]
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    x = tl.load(x_ptr + at, mask=inside, other=-float("inf"))
    x = tl.where((row < rows)[:, None], x, 0.0)
    e = tl.exp(x - tl.max(x, axis=1)[:, None])
    tl.store(y_ptr + at, e / tl.sum(e, axis=1)[:, None], mask=inside)


@triton.jit
def wide_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + at, e / tl.sum(e, axis=0), mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        if columns > 65536:
            return torch.softmax(x, dim=1)
        x = x.contiguous()
        y = torch.empty_like(x)
        block = triton.next_power_of_2(columns)
        if columns <= 512:
            narrow_kernel[(triton.cdiv(rows, 8),)](x, y, rows, columns, ROWS=8, COLUMNS=block)
        else:
            wide_kernel[(rows,)](x, y, columns, BLOCK=block, num_warps=8 if columns <= 8192 else 16)
        return y
