"""Matrix product by tiles, walked in groups so that neighbours find their tiles in the cache; IEEE float32 products.

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
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    tile = tl.program_id(0)
    tiles_n = tl.cdiv(N, BN)
    per_group = GROUP * tiles_n
    first = tile // per_group * GROUP
    height = min(tl.cdiv(M, BM) - first, GROUP)
    m = (first + tile % per_group % height) * BM + tl.arange(0, BM)
    n = (tile % per_group // height) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc, mask=(m < M)[:, None] & (n < N)[None, :])


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (M, K), N = a.shape, b.shape[1]
        c = torch.empty(M, N, device=a.device, dtype=a.dtype)
        grid = (triton.cdiv(M, 32) * triton.cdiv(N, 32),)
        matmul_kernel[grid](a, b, c, M, N, K, BM=32, BN=32, BK=32, GROUP=4)
        return c
