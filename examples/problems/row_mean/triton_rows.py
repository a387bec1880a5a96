"""Correct: eight rows per program, walked over in blocks of columns."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def mean_kernel(x_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS,), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = (row < rows)[:, None] & (column < columns)[None, :]
        total += tl.sum(tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=mask, other=0.0), axis=1)
    tl.store(out_ptr + row, total / columns, mask=row < rows)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        mean_kernel[(triton.cdiv(rows, 8),)](x, out, rows, columns, ROWS=8, BLOCK=2048, num_warps=8)
        return out
