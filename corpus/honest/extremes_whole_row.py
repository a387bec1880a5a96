"""Largest element, where it is, and which are above a threshold, from one read of the row.

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
def extremes_kernel(x_ptr, largest_ptr, where_ptr, above_ptr, columns, threshold, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=-float("inf"))
    tl.store(largest_ptr + row, tl.max(x, axis=0))
    tl.store(where_ptr + row, tl.argmax(x, axis=0).to(tl.int64))
    tl.store(above_ptr + row * columns + at, x > threshold, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, threshold):
        x = x.contiguous()
        rows, columns = x.shape
        largest = torch.empty(rows, device=x.device)
        where = torch.empty(rows, dtype=torch.int64, device=x.device)
        above = torch.empty(rows, columns, dtype=torch.bool, device=x.device)
        block = triton.next_power_of_2(columns)
        extremes_kernel[(rows,)](x, largest, where, above, columns, threshold, BLOCK=block, num_warps=8)
        return {"largest": largest, "where": where, "above": above}
