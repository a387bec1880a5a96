"""Average pooling that divides by the elements that are there, not by the window.

It shows at both ends of each row only.

problem: average_pool_padded
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def pool_row(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0)
    before = tl.load(x_ptr + row * columns + at - 1, mask=inside & (at > 0), other=0.0)
    after = tl.load(x_ptr + row * columns + at + 1, mask=at + 1 < columns, other=0.0)
    there = 1.0 + tl.where(at > 0, 1.0, 0.0) + tl.where(at + 1 < columns, 1.0, 0.0)
    tl.store(out_ptr + row * columns + at, (before + x + after) / there, mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        pool_row[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
