"""Configurations are pruned before they are tried: tiles larger than the matrix, too many bytes in shared memory.

problem: float32_matmul
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn

CONFIGS = [
    triton.Config({"BM": bm, "BN": bn, "BK": bk}, num_warps=4, num_stages=2)
    for bm in (32, 64, 128)
    for bn in (32, 64, 128)
    for bk in (16, 32, 64)
]


def worth_a_try(configs, named_args, **kwargs):
    size = min(named_args["M"], named_args["N"])
    kept = []
    for config in configs:
        bm, bn, bk = (config.kwargs[name] for name in ("BM", "BN", "BK"))
        if max(bm, bn) <= max(size, 32) and 2 * 4 * bk * (bm + bn) <= 24 * 1024:
            kept.append(config)
    return kept[:3] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": worth_a_try})
@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
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
        (m, k), n = a.shape, b.shape[1]
        c = torch.empty(m, n, dtype=a.dtype, device=a.device)
        matmul_kernel[lambda meta: (triton.cdiv(m, meta["BM"]), triton.cdiv(n, meta["BN"]))](a, b, c, m, n, k)
        return c
