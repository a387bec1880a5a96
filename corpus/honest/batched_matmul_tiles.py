"""Batched product of bfloat16 matrices by strides, summed in float32.

problem: batched_matmul_bfloat16
backend: triton
outcome: CORRECT
devices: cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def bmm_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    a_batch,
    a_row,
    a_column,
    b_batch,
    b_row,
    b_column,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    batch = tl.program_id(2).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(
            a_ptr + batch * a_batch + m[:, None] * a_row + k[None, :] * a_column,
            mask=(m < M)[:, None] & (k < K)[None, :],
            other=0.0,
        )
        b = tl.load(
            b_ptr + batch * b_batch + k[:, None] * b_row + n[None, :] * b_column,
            mask=(k < K)[:, None] & (n < N)[None, :],
            other=0.0,
        )
        acc = tl.dot(a, b, acc)
    at = batch * M * N + m[:, None] * N + n[None, :]
    tl.store(c_ptr + at, acc.to(tl.bfloat16), mask=(m < M)[:, None] & (n < N)[None, :])


class ModelNew(nn.Module):
    def forward(self, a, b):
        batch, M, K = a.shape
        N = b.shape[2]
        c = torch.empty(batch, M, N, dtype=a.dtype, device=a.device)
        bm, bn, bk = (128, 128, 64) if M >= 256 else (32, 32, 32)
        grid = (triton.cdiv(M, bm), triton.cdiv(N, bn), batch)
        bmm_kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), BM=bm, BN=bn, BK=bk, num_warps=8)
        return c
