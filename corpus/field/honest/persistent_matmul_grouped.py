"""Persistent product: programs take tiles in groups of rows, so that neighbours share operands in the cache.

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
def place(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    group = tile // (GROUP * tiles_n)
    first = group * GROUP
    height = min(tiles_m - first, GROUP)
    within = tile % (GROUP * tiles_n)
    return first + within % height, within // height


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True):
        pm, pn = place(tile, tiles_m, tiles_n, GROUP)
        m, n = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), tl.float32)
        for start in range(0, K, BK):
            k = start + tl.arange(0, BK)
            a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
            b = tl.load(b_ptr + n[None, :] * K + k[:, None], mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
            acc = tl.dot(a, b, acc)
        tl.store(
            c_ptr + m[:, None] * N + n[None, :],
            acc.to(c_ptr.dtype.element_ty),
            mask=(m < M)[:, None] & (n < N)[None, :],
        )


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[0]
        c = torch.empty(m, n, dtype=a.dtype, device=a.device)
        if a.is_cuda:
            programs = torch.cuda.get_device_properties(a.device).multi_processor_count
            matmul_kernel[(programs,)](a, b, c, m, n, k, BM=128, BN=128, BK=64, GROUP=8, num_warps=8, num_stages=3)
        else:
            matmul_kernel[(2,)](a, b, c, m, n, k, BM=32, BN=32, BK=64, GROUP=2)
        return c
