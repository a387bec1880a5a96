"""Wrong shape: keeps the reduced dimension."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def mean_kernel(x_ptr, out_ptr, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS,), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x_ptr + row[:, None] * columns + column[None, :]), axis=1)
    tl.store(out_ptr + row, total / columns)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        out = torch.empty(rows, 1, device=x.device, dtype=x.dtype)
        mean_kernel[(rows // 8,)](x, out, columns, ROWS=8, BLOCK=2048, num_warps=8)
        return out
