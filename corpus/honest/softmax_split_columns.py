"""Softmax of rows that are split among programs: partial maxima and sums go to a workspace that is kept between calls.

problem: rows_softmax
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn

SPLITS = 2


@triton.jit
def partial_kernel(x_ptr, top_ptr, total_ptr, columns, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    split = tl.program_id(1)
    at = split * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=-float("inf"))
    top = tl.max(x, axis=0)
    tl.store(top_ptr + row * SPLITS + split, top)
    tl.store(total_ptr + row * SPLITS + split, tl.sum(tl.exp(x - top), axis=0))


@triton.jit
def finish_kernel(x_ptr, y_ptr, top_ptr, total_ptr, columns, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    parts = row * SPLITS + tl.arange(0, SPLITS)
    tops = tl.load(top_ptr + parts)
    top = tl.max(tops, axis=0)
    total = tl.sum(tl.load(total_ptr + parts) * tl.exp(tops - top), axis=0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=-float("inf"))
    tl.store(y_ptr + row * columns + at, tl.exp(x - top) / total, mask=at < columns)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.workspace = {}

    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        key = (rows, x.device)
        if key not in self.workspace:
            self.workspace[key] = torch.empty(2, rows, SPLITS, device=x.device)
        tops, totals = self.workspace[key]
        y = torch.empty_like(x)
        block = triton.next_power_of_2(triton.cdiv(columns, SPLITS))
        partial_kernel[(rows, SPLITS)](x, tops, totals, columns, SPLITS=SPLITS, BLOCK=block, num_warps=4)
        whole = triton.next_power_of_2(columns)
        finish_kernel[(rows,)](x, y, tops, totals, columns, SPLITS=SPLITS, BLOCK=whole, num_warps=8)
        return y
