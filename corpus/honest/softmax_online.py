"""Softmax with a running maximum and a running sum, in two passes over blocks of columns.

problem: rows_softmax
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * columns
    y_ptr += row * columns
    largest = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < columns, other=-float("inf"))
        bigger = tl.maximum(largest, x)
        # A lane that has seen nothing yet has -inf in both, and -inf minus -inf is no number.
        base = tl.where(bigger == -float("inf"), 0.0, bigger)
        total = total * tl.exp(largest - base) + tl.exp(x - base)
        largest = bigger
    top = tl.max(largest, axis=0)
    denominator = tl.sum(total * tl.exp(largest - top), axis=0)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < columns, other=-float("inf"))
        tl.store(y_ptr + at, tl.exp(x - top) / denominator, mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        softmax_kernel[(rows,)](x, y, columns, BLOCK=min(1024, triton.next_power_of_2(columns)))
        return y
