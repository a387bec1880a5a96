"""Column sums whose kernel is tuned on the output itself, to which every configuration adds.

The first call returns the sums of all these runs; every later one is right.

problem: column_sums_square
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune([triton.Config({"ROWS": rows}) for rows in (32, 64)], key=["rows", "columns"])
@triton.jit
def add_columns(x_ptr, sums_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
    tl.atomic_add(sums_ptr + column, tl.sum(x, axis=0), mask=column < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        sums = torch.zeros(columns, device=x.device)

        def grid(meta):
            return triton.cdiv(rows, meta["ROWS"]), triton.cdiv(columns, 32)

        add_columns[grid](x, sums, rows, columns, COLUMNS=32)
        return sums
