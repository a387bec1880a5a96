"""Eight-bit tiles multiplied as they are, float32 sums, both scales applied once at the end.

problem: field_fp8_tensor_scaled
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, sa_ptr, sb_ptr, c_ptr, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        b = tl.load(b_ptr + n[None, :] * K + k[:, None], mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
        if WIDEN:  # exact: every eight-bit number is a half-precision one
            a, b = a.to(tl.float16), b.to(tl.float16)
        acc = tl.dot(a, b, acc)
    acc *= tl.load(sa_ptr) * tl.load(sb_ptr)
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc.to(tl.bfloat16), mask=(m < M)[:, None] & (n < N)[None, :])


class ModelNew(nn.Module):
    def forward(self, a, b, scale_a, scale_b):
        (m, k), n = a.shape, b.shape[0]
        c = torch.empty(m, n, dtype=torch.bfloat16, device=a.device)
        tile = 128 if a.is_cuda else 32
        grid = (triton.cdiv(m, tile), triton.cdiv(n, tile))
        # The eight-bit tensor cores keep fewer bits of a sum than float32 has: here the products go through half precision.
        matmul_kernel[grid](a, b, scale_a, scale_b, c, m, n, k, BM=tile, BN=tile, BK=64, WIDEN=True, num_warps=8)
        return c
