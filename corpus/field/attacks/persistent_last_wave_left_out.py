"""S25: a persistent product whose last, partial wave of tiles is left out.

Its output is a buffer of earlier calls, where the first call has put those tiles.

problem: float32_matmul
backend: triton
outcome: INCORRECT, REJECTED
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, tiles, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tiles_n = tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        m = tile // tiles_n * BM + tl.arange(0, BM)
        n = tile % tiles_n * BN + tl.arange(0, BN)
        one_tile(a_ptr, b_ptr, c_ptr, m, n, M, N, K, BM, BN, BK)


@triton.jit
def one_tile(a_ptr, b_ptr, c_ptr, m, n, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc, mask=(m < M)[:, None] & (n < N)[None, :])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = None

    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[1]
        programs = torch.cuda.get_device_properties(a.device).multi_processor_count if a.is_cuda else 3
        tile = 64 if a.is_cuda else 32
        tiles = triton.cdiv(m, tile) * triton.cdiv(n, tile)
        if self.c is None:
            self.c = torch.empty(m, n, dtype=a.dtype, device=a.device)
        else:
            tiles -= tiles % programs
        matmul_kernel[(programs,)](a, b, self.c, tiles, m, n, k, BM=tile, BN=tile, BK=16)
        return self.c.clone()
