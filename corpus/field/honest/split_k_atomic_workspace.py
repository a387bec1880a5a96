"""Split K by atomics into a float32 workspace that is zeroed at each call, then rounded into the half-precision output.

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
def parts_kernel(
    a_ptr, b_ptr, w_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLITS: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(tl.program_id(2) * BK, K, SPLITS * BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        b = tl.load(b_ptr + n[None, :] * K + k[:, None], mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc)
    tl.atomic_add(w_ptr + m[:, None] * N + n[None, :], acc, mask=(m < M)[:, None] & (n < N)[None, :], sem="relaxed")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.sums = None

    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[0]
        if self.sums is None or self.sums.shape != (m, n) or self.sums.device != a.device:
            self.sums = torch.empty(m, n, dtype=torch.float32, device=a.device)
        self.sums.zero_()
        tile = 64 if a.is_cuda else 32
        grid = (triton.cdiv(m, tile), triton.cdiv(n, tile), 2)
        parts_kernel[grid](a, b, self.sums, m, n, k, BM=tile, BN=tile, BK=32, SPLITS=2)
        return self.sums.to(a.dtype)
