"""Block scales: each step over the inner dimension is one block, whose product is scaled before it is added.

problem: field_fp8_block_scaled
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
    a_ptr, b_ptr, sa_ptr, sb_ptr, c_ptr, M, N, K, GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    groups = K // GROUP
    acc = tl.zeros((BM, BN), tl.float32)
    for group in range(0, groups):
        k = group * GROUP + tl.arange(0, GROUP)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None], other=0.0).to(tl.float16)
        b = tl.load(b_ptr + n[None, :] * K + k[:, None], mask=(n < N)[None, :], other=0.0).to(tl.float16)
        sa = tl.load(sa_ptr + m * groups + group, mask=m < M, other=0.0)
        sb = tl.load(sb_ptr + n // GROUP * groups + group, mask=n < N, other=0.0)
        acc += tl.dot(a, b) * sa[:, None] * sb[None, :]
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc.to(tl.bfloat16), mask=(m < M)[:, None] & (n < N)[None, :])


class ModelNew(nn.Module):
    def forward(self, a, b, scale_a, scale_b):
        (m, k), n = a.shape, b.shape[0]
        c = torch.empty(m, n, dtype=torch.bfloat16, device=a.device)
        bm, bn = (64, 64) if a.is_cuda else (32, 32)
        grid = (triton.cdiv(m, bm), triton.cdiv(n, bn))
        matmul_kernel[grid](a, b, scale_a, scale_b, c, m, n, k, GROUP=k // scale_a.shape[1], BM=bm, BN=bn)
        return c
