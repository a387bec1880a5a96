"""Correct: walks over column blocks twice, with a running maximum and a running sum."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    largest = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    for start in range(0, columns, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        mask = (row < rows)[:, None] & (column < columns)[None, :]
        x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=mask, other=-float("inf"))
        new_largest = tl.maximum(largest, tl.max(x, axis=1))
        total = total * tl.exp(largest - new_largest) + tl.sum(tl.exp(x - new_largest[:, None]), axis=1)
        largest = new_largest
    for start in range(0, columns, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        mask = (row < rows)[:, None] & (column < columns)[None, :]
        offsets = row[:, None] * columns + column[None, :]
        x = tl.load(x_ptr + offsets, mask=mask, other=-float("inf"))
        tl.store(out_ptr + offsets, tl.exp(x - largest[:, None]) / total[:, None], mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty_like(x)
        softmax_kernel[(triton.cdiv(rows, 32),)](x, out, rows, columns, ROWS=32, COLUMNS=256, num_warps=8)
        return out
