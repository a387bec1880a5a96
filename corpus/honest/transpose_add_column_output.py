"""Sum with a transposed view whose output keeps the order of the view: it is not contiguous.

problem: transpose_and_add
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, rows, columns, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (m < rows)[:, None] & (n < columns)[None, :]
    y = tl.load(y_ptr + m[:, None] * columns + n[None, :], mask=inside)
    at = n[None, :] * rows + m[:, None]
    tl.store(z_ptr + at, tl.load(x_ptr + at, mask=inside) + 2.0 * y, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, y):
        rows, columns = x.shape
        x_columns, y = x.t().contiguous(), y.contiguous()
        z = torch.empty_like(x_columns)
        grid = (triton.cdiv(rows, 32), triton.cdiv(columns, 32))
        add_kernel[grid](x_columns, y, z, rows, columns, BM=32, BN=32)
        return z.t()
