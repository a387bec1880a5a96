"""A running sum in blocks whose carry is the sum of the last block only.

It shows from the third block of a row on.

problem: cumulative_sum_rows
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def running_sum(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    carry = tl.zeros((), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
        tl.store(out_ptr + row * columns + at, carry + tl.cumsum(x, axis=0), mask=at < columns)
        carry = tl.sum(x, axis=0)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        running_sum[(x.shape[0],)](x, out, x.shape[1], BLOCK=64)
        return out
