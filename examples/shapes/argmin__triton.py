"""Correct: one whole row per program; the first of equals wins."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def argmin_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=float("inf"))
    tl.store(out_ptr + row, tl.argmin(x, axis=0).to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        out = torch.empty(rows, device=x.device, dtype=torch.int64)
        argmin_kernel[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8)
        return out
