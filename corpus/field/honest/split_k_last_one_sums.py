"""Split K in one launch: whoever comes last at a tile, by a counter, sums the tile's parts and sets the counter back.

Workspace and counters are kept; every call leaves the counters at zero.

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
    a_ptr, b_ptr, c_ptr, w_ptr, lock_ptr, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    pm, pn, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    m, n = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(part * BK, K, SPLITS * BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    inside = (m < M)[:, None] & (n < N)[None, :]
    at = m[:, None] * N + n[None, :]
    tl.store(w_ptr + part * M * N + at, acc, mask=inside)
    tl.debug_barrier()  # all of this program's stores before its sign
    tile = pm * tl.num_programs(1) + pn
    if tl.atomic_add(lock_ptr + tile, 1, sem="acq_rel") == SPLITS - 1:
        total = tl.zeros((BM, BN), tl.float32)
        for other in range(SPLITS):
            total += tl.load(w_ptr + other * M * N + at, mask=inside, other=0.0, cache_modifier=".cg")
        tl.store(c_ptr + at, total, mask=inside)
        tl.atomic_xchg(lock_ptr + tile, 0)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[1]
        tile, splits = (64, 4) if a.is_cuda else (32, 2)
        grid = (triton.cdiv(m, tile), triton.cdiv(n, tile), splits)
        key = (m, n, a.device)
        if key not in self.kept:
            workspace = torch.empty(splits * m * n, dtype=torch.float32, device=a.device)
            self.kept[key] = workspace, torch.zeros(grid[0] * grid[1], dtype=torch.int32, device=a.device)
        workspace, locks = self.kept[key]
        c = torch.empty(m, n, dtype=a.dtype, device=a.device)
        matmul_kernel[grid](a, b, c, workspace, locks, m, n, k, BM=tile, BN=tile, BK=32, SPLITS=splits)
        return c
