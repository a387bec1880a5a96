"""Running sums of several whole rows for each program by an associative scan.

problem: rows_cumsum
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def add(left, right):
    return left + right


@triton.jit
def cumsum_kernel(x_ptr, y_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    at = row[:, None] * columns + column[None, :]
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    tl.store(y_ptr + at, tl.associative_scan(x, 1, add), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        block = triton.next_power_of_2(columns)
        cumsum_kernel[(triton.cdiv(rows, 2),)](x, y, rows, columns, ROWS=2, COLUMNS=block, num_warps=8)
        return y
