"""Wrong: computes once, and returns that first output for every later input."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    offsets = row[:, None] * columns + column[None, :]
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    x = tl.load(x_ptr + offsets, mask=mask, other=-float("inf"))
    x = tl.where((row < rows)[:, None], x, 0.0)
    numerator = tl.exp(x - tl.max(x, axis=1)[:, None])
    tl.store(out_ptr + offsets, numerator / tl.sum(numerator, axis=1)[:, None], mask=mask)


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[torch.Size, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape not in self.cache:
            rows, columns = x.shape
            out = torch.empty_like(x)
            block = triton.next_power_of_2(columns)
            softmax_kernel[(triton.cdiv(rows, 16),)](x, out, rows, columns, ROWS=16, COLUMNS=block, num_warps=8)
            self.cache[x.shape] = out
        return self.cache[x.shape]
