"""Split K: the parts go to a workspace that is kept for the next call, a second kernel sums them into a fresh output.

Each call writes all of the workspace before it reads it.

problem: float32_matmul
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
    part = tl.program_id(2)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(part * BK, K, SPLITS * BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    at = part * M * N + m[:, None] * N + n[None, :]
    tl.store(w_ptr + at, acc, mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def sum_kernel(w_ptr, c_ptr, count, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(SPLITS):
        total += tl.load(w_ptr + part * count + at, mask=at < count, other=0.0)
    tl.store(c_ptr + at, total, mask=at < count)


class ModelNew(nn.Module):
    SPLITS = 4

    def __init__(self):
        super().__init__()
        self.workspace = None

    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[1]
        if self.workspace is None or self.workspace.numel() < self.SPLITS * m * n or self.workspace.device != a.device:
            self.workspace = torch.empty(self.SPLITS * m * n, dtype=torch.float32, device=a.device)
        c = torch.empty(m, n, dtype=a.dtype, device=a.device)
        tile = 64 if a.is_cuda else 32
        grid = (triton.cdiv(m, tile), triton.cdiv(n, tile), self.SPLITS)
        parts_kernel[grid](a, b, self.workspace, m, n, k, BM=tile, BN=tile, BK=16, SPLITS=self.SPLITS)
        sum_kernel[(triton.cdiv(m * n, 1024),)](self.workspace, c, m * n, SPLITS=self.SPLITS, BLOCK=1024)
        return c
