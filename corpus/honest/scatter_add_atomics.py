"""Rows added to their groups by atomics.

problem: scatter_add_rows
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def scatter_kernel(x_ptr, group_ptr, y_ptr, rows, features, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    group = tl.load(group_ptr + row, mask=row < rows, other=0)
    column = tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (column < features)[None, :]
    x = tl.load(x_ptr + row[:, None] * features + column[None, :], mask=inside, other=0.0)
    tl.atomic_add(y_ptr + group[:, None] * features + column[None, :], x, mask=inside, sem="relaxed")


class ModelNew(nn.Module):
    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, x, group):
        x, group = x.contiguous(), group.contiguous()
        rows, features = x.shape
        y = torch.zeros(self.groups, features, dtype=x.dtype, device=x.device)
        block = triton.next_power_of_2(features)
        scatter_kernel[(triton.cdiv(rows, 8),)](x, group, y, rows, features, ROWS=8, BLOCK=block)
        return y
