"""A softmax whose padding counts as zero in the maximum, though not in the sum.

It shows where every element of a row is far below zero (-104): then all exponentials vanish and it divides zero by zero.

problem: softmax_of_penalties
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
    largest = tl.max(x, axis=0)
    numbers = tl.where(inside, tl.exp(x - largest), 0.0)
    tl.store(out_ptr + row * columns + at, numbers / tl.sum(numbers, axis=0), mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_of_row[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
