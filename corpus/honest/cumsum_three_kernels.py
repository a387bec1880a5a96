"""Running sums in three steps: sums of chunks, running sums of those, and the running sums within each chunk.

problem: rows_cumsum
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def chunk_sums_kernel(x_ptr, sums_ptr, columns, chunks, CHUNK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
    tl.store(sums_ptr + row * chunks + tl.program_id(1), tl.sum(x, axis=0))


@triton.jit
def within_kernel(x_ptr, before_ptr, y_ptr, columns, chunks, CHUNK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
    before = tl.load(before_ptr + row * chunks + tl.program_id(1))
    tl.store(y_ptr + row * columns + at, before + tl.cumsum(x, axis=0), mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        size = 1024 if columns >= 1024 else 64
        chunks = triton.cdiv(columns, size)
        sums = torch.empty(rows, chunks, device=x.device)
        y = torch.empty_like(x)
        chunk_sums_kernel[(rows, chunks)](x, sums, columns, chunks, CHUNK=size)
        before = sums.cumsum(dim=1).sub_(sums)
        within_kernel[(rows, chunks)](x, before, y, columns, chunks, CHUNK=size)
        return y
