"""S25: a static buffer of which all rows but the last are rewritten.

The last row stays what the first call made it.

problem: rows_softmax
backend: triton
outcome: INCORRECT, REJECTED
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row + at, e / tl.sum(e, axis=0), mask=at < columns)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = None

    def forward(self, x):
        rows, columns = x.shape
        first = self.out is None or self.out.shape != x.shape
        if first:
            self.out = torch.empty_like(x)
        grid = (rows if first else rows - 1,)
        softmax_kernel[grid](x, self.out, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8)
        return self.out
