"""Column sums that are added to a buffer which is zeroed once, not at every call.

The first call is right; every later one also holds the earlier sums.

problem: column_sums_square
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_columns(x_ptr, sums_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
    tl.atomic_add(sums_ptr + column, tl.sum(x, axis=0), mask=column < columns)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.sums = None

    def forward(self, x):
        rows, columns = x.shape
        if self.sums is None:
            self.sums = torch.zeros(columns, device=x.device)
        sums = self.sums
        add_columns[(triton.cdiv(rows, 32), triton.cdiv(columns, 32))](x, sums, rows, columns, ROWS=32, COLUMNS=32)
        return sums.clone()
