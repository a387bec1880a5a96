"""The second largest distinct element: it hides every element that equals the largest.

It shows only in rows that have their largest element more than once, such as constant rows.

problem: second_largest_rows
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def second_of_row(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=float("-inf"))
    first = tl.max(x, axis=0)
    second = tl.max(tl.where(x == first, float("-inf"), x), axis=0)
    tl.store(out_ptr + row, second)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device)
        second_of_row[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
