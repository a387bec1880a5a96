"""Softmax whose block size is tuned at the first call of each width.

problem: rows_softmax
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 512}, num_warps=4),
        triton.Config({"BLOCK": 1024}, num_warps=4),
        triton.Config({"BLOCK": 2048}, num_warps=8),
    ],
    key=["columns"],
)
@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * columns
    y_ptr += row * columns
    lanes = tl.arange(0, BLOCK)
    top = -float("inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        at = start + lanes
        x = tl.load(x_ptr + at, mask=at < columns, other=-float("inf"))
        bigger = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - bigger) + tl.sum(tl.exp(x - bigger), axis=0)
        top = bigger
    for start in range(0, columns, BLOCK):
        at = start + lanes
        x = tl.load(x_ptr + at, mask=at < columns, other=-float("inf"))
        tl.store(y_ptr + at, tl.exp(x - top) / total, mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1])
        return y
