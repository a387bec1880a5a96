"""An online softmax that does not rescale its running sum when the maximum grows.

It shows in every row whose maximum is not in the first block.

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
def softmax_online(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    largest = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=float("-inf"))
        grown = tl.maximum(largest, tl.max(x, axis=0))
        total = total + tl.sum(tl.exp(x - grown), axis=0)
        largest = grown
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=float("-inf"))
        tl.store(out_ptr + row * columns + at, tl.exp(x - largest) / total, mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_online[(x.shape[0],)](x, out, x.shape[1], BLOCK=64)
        return out
