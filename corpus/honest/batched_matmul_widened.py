"""Batched product of bfloat16 matrices, widened to float32 on their way in, of which the output is a transposed view.

problem: batched_matmul_bfloat16
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def bmm_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    batch = tl.program_id(2).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BN, BM), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(
            a_ptr + batch * M * K + m[None, :] * K + k[:, None], mask=(m < M)[None, :] & (k < K)[:, None], other=0.0
        )
        b = tl.load(
            b_ptr + batch * N * K + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0
        )
        # Products of bfloat16 numbers are exact in TF32 as well.
        acc = tl.dot(b.to(tl.float32), a.to(tl.float32), acc, input_precision="tf32")
    at = batch * M * N + n[:, None] * M + m[None, :]
    tl.store(c_ptr + at, acc.to(tl.bfloat16), mask=(n < N)[:, None] & (m < M)[None, :])


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.transpose(1, 2).contiguous()
        (batch, M, K), N = a.shape, b.shape[1]
        c = torch.empty(batch, N, M, dtype=a.dtype, device=a.device)
        bm, bn = (64, 64) if M >= 256 else (32, 32)
        bmm_kernel[(triton.cdiv(M, bm), triton.cdiv(N, bn), batch)](a, b, c, M, N, K, BM=bm, BN=bn, BK=32)
        return c.transpose(1, 2)
