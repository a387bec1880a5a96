"""A linear layer whose bias is added along the rows.

It shows always, though the output is square and the shapes fit.

problem: linear_square
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def multiply(a_ptr, b_ptr, bias_ptr, out_ptr, rows, inner, columns, TILE: tl.constexpr):
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, inner, TILE):
        step = start + tl.arange(0, TILE)
        a = tl.load(
            a_ptr + row[:, None] * inner + step[None, :],
            mask=(row < rows)[:, None] & (step < inner)[None, :],
            other=0.0,
        )
        b = tl.load(
            b_ptr + column[None, :] * inner + step[:, None],
            mask=(step < inner)[:, None] & (column < columns)[None, :],
            other=0.0,
        )
        total += tl.dot(a, b, input_precision="ieee")
    total += tl.load(bias_ptr + row, mask=row < rows, other=0.0)[:, None]
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    tl.store(out_ptr + row[:, None] * columns + column[None, :], total, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x):
        rows, size = x.shape
        out = torch.empty_like(x)
        grid = (triton.cdiv(rows, 32), triton.cdiv(size, 32))
        multiply[grid](x, self.linear.weight, self.linear.bias, out, rows, size, size, TILE=32)
        return out


# Above is linear_bias_per_row. Variants, with what differs:
#
# linear_bias_twice: A linear layer that adds its bias before and after the product.
#   It shows in every column.
#   -     total += tl.load(bias_ptr + row, mask=row < rows, other=0.0)[:, None]
#   +     total += tl.load(bias_ptr + column, mask=column < columns, other=0.0)[None, :]
#   +     total += tl.load(bias_ptr + column, mask=column < columns, other=0.0)[None, :]
#
# linear_weight_transposed: A linear layer that takes its weight the other way round.
#   It shows always, though the weight is square and the shapes fit.
#   -             b_ptr + column[None, :] * inner + step[:, None],
#   +             b_ptr + step[:, None] * columns + column[None, :],
#   -     total += tl.load(bias_ptr + row, mask=row < rows, other=0.0)[:, None]
#   +     total += tl.load(bias_ptr + column, mask=column < columns, other=0.0)[None, :]
#
# linear_zero_bias_forgotten: A linear layer without its bias.
#   It shows only where the bias is not zero, and it starts at zero.
#   problem: linear_zero_bias
#   -         self.linear = nn.Linear(size, size)
#   +         self.linear = nn.Linear(size, size)
#   +         nn.init.zeros_(self.linear.bias)
#   -     total += tl.load(bias_ptr + row, mask=row < rows, other=0.0)[:, None]
