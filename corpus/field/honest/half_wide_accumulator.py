"""Half-precision tiles on the tensor cores, summed in float32 and rounded once.

problem: field_half_matmul
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a_ptrs = a_ptr + (m % M)[:, None] * K + k[None, :]
    b_ptrs = b_ptr + (n % N)[None, :] * K + k[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for left in range(K, 0, -BK):
        acc += tl.dot(
            tl.load(a_ptrs, mask=k[None, :] < left, other=0.0), tl.load(b_ptrs, mask=k[:, None] < left, other=0.0)
        )
        a_ptrs += BK
        b_ptrs += BK
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc.to(tl.float16), mask=(m < M)[:, None] & (n < N)[None, :])


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[0]
        c = torch.empty(m, n, dtype=a.dtype, device=a.device)
        tile = 128 if a.is_cuda else 32
        grid = (triton.cdiv(m, tile), triton.cdiv(n, tile))
        matmul_kernel[grid](a, b, c, m, n, k, BM=tile, BN=tile, BK=32, num_warps=8, num_stages=3)
        return c
