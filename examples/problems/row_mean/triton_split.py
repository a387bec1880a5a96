"""Correct: partial sums of column blocks in one kernel, their sum in a second one."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def partial_kernel(x_ptr, partial_ptr, columns, parts, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    part = tl.program_id(1)
    column = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=(column < columns)[None, :], other=0.0)
    tl.store(partial_ptr + row * parts + part, tl.sum(x, axis=1))


@triton.jit
def finish_kernel(partial_ptr, out_ptr, columns, parts, ROWS: tl.constexpr, PARTS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    part = tl.arange(0, PARTS)
    sums = tl.load(partial_ptr + row[:, None] * parts + part[None, :], mask=(part < parts)[None, :], other=0.0)
    tl.store(out_ptr + row, tl.sum(sums, axis=1) / columns)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, columns = x.shape
        assert rows % 32 == 0
        parts = triton.cdiv(columns, 1024)
        partial = torch.empty(rows, parts, device=x.device)
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        partial_kernel[(rows // 32, parts)](x, partial, columns, parts, ROWS=32, BLOCK=1024, num_warps=8)
        block = triton.next_power_of_2(parts)
        finish_kernel[(rows // 32,)](partial, out, columns, parts, ROWS=32, PARTS=block)
        return out
