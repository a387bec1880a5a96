"""A softmax whose masked loads give zero, so that the padding counts in the sum.

It shows in every row, as long as the row is not a power of two long.

problem: softmax_ragged_columns
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_of_row(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0)
    numbers = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * columns + at, numbers / tl.sum(numbers, axis=0), mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_of_row[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
