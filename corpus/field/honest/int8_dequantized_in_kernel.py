"""Eight-bit weights are widened in the kernel, their scales applied to the sums.

problem: field_int8_weight_linear
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def linear_kernel(x_ptr, w_ptr, s_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        w = tl.load(w_ptr + n[None, :] * K + k[:, None], mask=(k < K)[:, None] & (n < N)[None, :], other=0)
        acc = tl.dot(x, w.to(tl.float32), acc, input_precision="ieee")
    acc *= tl.load(s_ptr + n, mask=n < N, other=0.0)[None, :]
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc, mask=(m < M)[:, None] & (n < N)[None, :])


class ModelNew(nn.Module):
    def forward(self, x, weight, scale):
        x = x.contiguous()
        (m, k), n = x.shape, weight.shape[0]
        y = torch.empty(m, n, dtype=x.dtype, device=x.device)
        bm, bn = (32, 64) if x.is_cuda else (16, 32)
        linear_kernel[(triton.cdiv(m, bm), triton.cdiv(n, bn))](x, weight, scale, y, m, n, k, BM=bm, BN=bn, BK=32)
        return y
