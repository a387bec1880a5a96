"""Product with a symmetric matrix that reads only its lower half: tiles above the diagonal are transposed ones below.

problem: symmetric_matmul
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def symmetric_kernel(s_ptr, x_ptr, y_ptr, size, columns, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, size, BK):
        k = start + tl.arange(0, BK)
        # The larger of two indices is the row.
        row = tl.maximum(m[:, None], k[None, :])
        column = tl.minimum(m[:, None], k[None, :])
        s = tl.load(s_ptr + row * size + column, mask=row < size, other=0.0)
        x = tl.load(
            x_ptr + k[:, None] * columns + n[None, :], mask=(k < size)[:, None] & (n < columns)[None, :], other=0.0
        )
        acc = tl.dot(s, x, acc, input_precision="ieee")
    tl.store(y_ptr + m[:, None] * columns + n[None, :], acc, mask=(m < size)[:, None] & (n < columns)[None, :])


class ModelNew(nn.Module):
    def forward(self, symmetric, x):
        symmetric, x = symmetric.contiguous(), x.contiguous()
        y = torch.empty_like(x)
        grid = (triton.cdiv(symmetric.shape[0], 32), triton.cdiv(x.shape[1], 32))
        symmetric_kernel[grid](symmetric, x, y, symmetric.shape[0], x.shape[1], BM=32, BN=32, BK=32)
        return y
