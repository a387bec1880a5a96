"""Correct: scales each row, and never builds the diagonal matrix."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def scale_rows_kernel(d_ptr, b_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = column < columns
    b = tl.load(b_ptr + row * columns + column, mask=mask)
    tl.store(out_ptr + row * columns + column, b * tl.load(d_ptr + row), mask=mask)


class ModelNew(nn.Module):
    def forward(self, d: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        rows, columns = b.shape
        out = torch.empty_like(b)
        scale_rows_kernel[(rows, triton.cdiv(columns, 2048))](d, b, out, columns, BLOCK=2048)
        return out
