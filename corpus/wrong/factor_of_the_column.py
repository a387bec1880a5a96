"""A square matrix whose columns, not rows, get the factors.

It shows wherever the factors differ; the shapes fit either way.

problem: scale_rows_square
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_rows(x_ptr, factor_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns)
        factor = tl.load(factor_ptr + at, mask=at < columns)
        tl.store(out_ptr + row * columns + at, x * factor, mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x, factors):
        out = torch.empty_like(x)
        scale_rows[(x.shape[0],)](x, factors, out, x.shape[1], BLOCK=1024)
        return out
