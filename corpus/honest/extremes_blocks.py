"""Largest element and its first place by blocks: the least position among the lanes that hold the maximum.

problem: row_extremes
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def extremes_kernel(x_ptr, largest_ptr, where_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), -float("inf"), tl.float32)
    place = tl.full((BLOCK,), 0, tl.int32) + columns
    for start in range(0, columns, BLOCK):
        at = start + lanes
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=-float("inf"))
        better = x > best
        best = tl.where(better, x, best)
        place = tl.where(better, at, place)
    top = tl.max(best, axis=0)
    first = tl.min(tl.where(best == top, place, columns), axis=0)
    tl.store(largest_ptr + row, top)
    tl.store(where_ptr + row, first.to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x, threshold):
        x = x.contiguous()
        rows, columns = x.shape
        largest = torch.empty(rows, device=x.device)
        where = torch.empty(rows, dtype=torch.int64, device=x.device)
        extremes_kernel[(rows,)](x, largest, where, columns, BLOCK=min(1024, triton.next_power_of_2(columns)))
        return {"largest": largest, "where": where, "above": x > threshold}
