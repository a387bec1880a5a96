"""A softmax in blocks that subtracts the maximum of the first block, not of the row.

It shows only where a later block is larger than the first one by 88 or more: large values, rising rows, outliers.

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
def softmax_in_blocks(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    largest = tl.full((), float("-inf"), tl.float32)
    for start in range(0, BLOCK, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=float("-inf"))
        largest = tl.maximum(largest, tl.max(x, axis=0))
    total = tl.zeros((), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=float("-inf"))
        total += tl.sum(tl.exp(x - largest), axis=0)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=float("-inf"))
        tl.store(out_ptr + row * columns + at, tl.exp(x - largest) / total, mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_in_blocks[(x.shape[0],)](x, out, x.shape[1], BLOCK=64)
        return out
