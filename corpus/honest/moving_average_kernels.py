"""A moving average in a buffer: one kernel brings it up to date, and one subtracts it.

problem: moving_average
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def update_kernel(x_ptr, average_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    lanes = tl.arange(0, ROWS)
    inside = column < columns
    total = tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, rows, ROWS):
        row = start + lanes
        at = row[:, None] * columns + column[None, :]
        x = tl.load(x_ptr + at, mask=(row < rows)[:, None] & inside[None, :], other=0.0)
        total += tl.sum(x, axis=0)
    average = tl.load(average_ptr + column, mask=inside, other=0.0)
    tl.store(average_ptr + column, 0.9 * average + 0.1 * (total / rows), mask=inside)


@triton.jit
def subtract_kernel(x_ptr, average_ptr, y_ptr, count, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    average = tl.load(average_ptr + at % columns, mask=inside, other=0.0)
    tl.store(y_ptr + at, x - average, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.register_buffer("average", torch.zeros(columns))

    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        update_kernel[(triton.cdiv(columns, 32),)](x, self.average, rows, columns, ROWS=32, COLUMNS=32)
        subtract_kernel[(triton.cdiv(x.numel(), 1024),)](x, self.average, y, x.numel(), columns, BLOCK=1024)
        return y
