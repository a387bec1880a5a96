"""Split K by atomics, tuned over the parts: the tuner zeroes the output before each trial, the caller at each call.

problem: float32_matmul
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.autotune(
    configs=[
        triton.Config({"BM": 32, "BN": 32, "BK": 32, "SPLITS": 1}, num_warps=4),
        triton.Config({"BM": 32, "BN": 32, "BK": 16, "SPLITS": 2}, num_warps=4),
        triton.Config({"BM": 64, "BN": 64, "BK": 16, "SPLITS": 4}, num_warps=8),
    ],
    key=["M", "N", "K"],
    reset_to_zero=["c_ptr"],
)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLITS: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(tl.program_id(2) * BK, K, SPLITS * BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.atomic_add(c_ptr + m[:, None] * N + n[None, :], acc, mask=(m < M)[:, None] & (n < N)[None, :])


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[1]
        c = torch.zeros(m, n, dtype=a.dtype, device=a.device)

        def grid(meta):
            return (triton.cdiv(m, meta["BM"]), triton.cdiv(n, meta["BN"]), meta["SPLITS"])

        matmul_kernel[grid](a, b, c, m, n, k)
        return c
