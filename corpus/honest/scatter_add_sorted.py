"""Rows added to their groups without atomics: sorted by group first, then a program for each group.

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
def segments_kernel(x_ptr, order_ptr, ends_ptr, y_ptr, features, BLOCK: tl.constexpr):
    group = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < features
    begin = tl.load(ends_ptr + group - 1, mask=group > 0, other=0)
    end = tl.load(ends_ptr + group)
    total = tl.zeros((BLOCK,), tl.float32)
    for position in range(begin, end):
        row = tl.load(order_ptr + position)
        total += tl.load(x_ptr + row * features + column, mask=inside, other=0.0)
    tl.store(y_ptr + group * features + column, total, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, x, group):
        x = x.contiguous()
        features = x.shape[1]
        order = torch.argsort(group, stable=True)
        ends = torch.bincount(group, minlength=self.groups).cumsum(0)
        y = torch.empty(self.groups, features, dtype=x.dtype, device=x.device)
        segments_kernel[(self.groups,)](x, order, ends, y, features, BLOCK=triton.next_power_of_2(features))
        return y
