"""Correct: a running maximum and sum over blocks of columns, then a second walk that writes."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def log_softmax_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    largest = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=-1e30)
        new_largest = tl.maximum(largest, x)
        total = total * tl.exp(largest - new_largest) + tl.exp(x - new_largest)
        largest = new_largest
    row_largest = tl.max(largest, axis=0)
    log_sum = row_largest + tl.log(tl.sum(total * tl.exp(largest - row_largest), axis=0))
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = column < columns
        x = tl.load(x_ptr + row * columns + column, mask=mask)
        tl.store(out_ptr + row * columns + column, x - log_sum, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        out = torch.empty_like(x)
        log_softmax_kernel[(rows,)](x, out, columns, BLOCK=2048, num_warps=8)
        return out
