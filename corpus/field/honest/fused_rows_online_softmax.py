"""Softmax in two passes: maximum and sum together, each lane with its own, then the quotients.

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
    row = tl.program_id(0).to(tl.int64) * columns
    lanes = tl.arange(0, BLOCK)
    tops = tl.full((BLOCK,), -float("inf"), tl.float32)
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        x = tl.load(x_ptr + row + start + lanes, mask=start + lanes < columns, other=-float("inf"))
        bigger = tl.maximum(tops, x)
        seen = bigger > -float("inf")
        sums = tl.where(seen, sums * tl.exp(tops - bigger) + tl.exp(x - bigger), 0.0)
        tops = bigger
    top = tl.max(tops, axis=0)
    total = tl.sum(tl.where(tops > -float("inf"), sums * tl.exp(tops - top), 0.0), axis=0)
    for start in range(0, columns, BLOCK):
        x = tl.load(x_ptr + row + start + lanes, mask=start + lanes < columns, other=-float("inf"))
        tl.store(y_ptr + row + start + lanes, tl.exp(x - top) / total, mask=start + lanes < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=1024 if x.is_cuda else 128, num_warps=4)
        return y
