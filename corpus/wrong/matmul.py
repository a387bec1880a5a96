"""A single precision product whose sums are rounded to bfloat16 after each tile.

It shows by about one part in 300.

problem: matmul_ragged_inner
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def multiply(a_ptr, b_ptr, out_ptr, rows, inner, columns, TILE: tl.constexpr):
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
            b_ptr + step[:, None] * columns + column[None, :],
            mask=(step < inner)[:, None] & (column < columns)[None, :],
            other=0.0,
        )
        total += tl.dot(a, b, input_precision="ieee")
        total = total.to(tl.bfloat16).to(tl.float32)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    tl.store(out_ptr + row[:, None] * columns + column[None, :], total, mask=inside)


class ModelNew(nn.Module):
    def forward(self, a, b):
        (rows, inner), columns = a.shape, b.shape[1]
        out = torch.empty(rows, columns, dtype=a.dtype, device=a.device)
        grid = (triton.cdiv(rows, 32), triton.cdiv(columns, 32))
        multiply[grid](a, b, out, rows, inner, columns, TILE=32)
        return out


# Above is matmul_bfloat16_sums. Variants, with what differs:
#
# matmul_bfloat16_operands: A single precision product of operands rounded to bfloat16.
#   -         total += tl.dot(a, b, input_precision="ieee")
#   -         total = total.to(tl.bfloat16).to(tl.float32)
#   +         total += tl.dot(a.to(tl.bfloat16).to(tl.float32), b.to(tl.bfloat16).to(tl.float32), input_precision="ieee")
#
# matmul_half_sums: A single precision product whose sums are rounded to half precision after each tile.
#   It shows by about one part in 2000.
#   -         total = total.to(tl.bfloat16).to(tl.float32)
#   +         total = total.to(tl.float16).to(tl.float32)
#
# matmul_inner_rounded_down: A product that leaves out the last, partial tile of the inner dimension.
#   It shows in every element, by the share of the inner dimension that is left out.
#   -     for start in range(0, inner, TILE):
#   +     for start in range(0, inner // TILE * TILE, TILE):
#   -         total = total.to(tl.bfloat16).to(tl.float32)
#
# matmul_rows_shifted: A product whose second operand is read one row further on.
#   It shows in every element.
#   -             b_ptr + step[:, None] * columns + column[None, :],
#   +             b_ptr + tl.minimum(step + 1, inner - 1)[:, None] * columns + column[None, :],
#   -         total = total.to(tl.bfloat16).to(tl.float32)
