"""Product with a lower triangular matrix that never reads above the diagonal.

problem: triangular_matmul
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def triangular_kernel(l_ptr, x_ptr, y_ptr, size, columns, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, min(size, (tl.program_id(0) + 1) * BM), BK):
        k = start + tl.arange(0, BK)
        lower = tl.load(
            l_ptr + m[:, None] * size + k[None, :], mask=(m < size)[:, None] & (k[None, :] <= m[:, None]), other=0.0
        )
        x = tl.load(
            x_ptr + k[:, None] * columns + n[None, :], mask=(k < size)[:, None] & (n < columns)[None, :], other=0.0
        )
        acc = tl.dot(lower, x, acc, input_precision="ieee")
    tl.store(y_ptr + m[:, None] * columns + n[None, :], acc, mask=(m < size)[:, None] & (n < columns)[None, :])


class ModelNew(nn.Module):
    def forward(self, lower, x):
        lower, x = lower.contiguous(), x.contiguous()
        y = torch.empty_like(x)
        grid = (triton.cdiv(lower.shape[0], 32), triton.cdiv(x.shape[1], 32))
        triangular_kernel[grid](lower, x, y, lower.shape[0], x.shape[1], BM=32, BN=32, BK=16)
        return y
