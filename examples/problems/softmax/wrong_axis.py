"""Wrong: normalises each column instead of each row."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    offsets = row[:, None] * columns + column[None, :]
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    x = tl.load(x_ptr + offsets, mask=mask, other=-float("inf"))
    x = tl.where((column < columns)[None, :], x, 0.0)
    numerator = tl.exp(x - tl.max(x, axis=0)[None, :])
    tl.store(out_ptr + offsets, numerator / tl.sum(numerator, axis=0)[None, :], mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        out = torch.empty_like(x)
        block = triton.next_power_of_2(rows)
        softmax_kernel[(triton.cdiv(columns, 64),)](x, out, rows, columns, ROWS=block, COLUMNS=64, num_warps=8)
        return out
