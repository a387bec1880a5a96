"""Two weights a byte: low ones meet the even columns of x, high ones the odd; a group of columns has one scale and zero.

problem: field_int4_packed_linear
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def linear_kernel(x_ptr, p_ptr, s_ptr, z_ptr, y_ptr, M, N, K, GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    groups = K // GROUP
    rows, columns = (m < M)[:, None], (n < N)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for group in range(0, groups):
        pair = group * (GROUP // 2) + tl.arange(0, GROUP // 2)
        packed = tl.load(p_ptr + n[None, :] * (K // 2) + pair[:, None], mask=columns, other=0)
        scale = tl.load(s_ptr + n * groups + group, mask=n < N, other=0.0)[None, :]
        zero = tl.load(z_ptr + n * groups + group, mask=n < N, other=0.0)[None, :]
        low = ((packed & 15).to(tl.float32) - zero) * scale
        high = ((packed >> 4).to(tl.float32) - zero) * scale
        even = tl.load(x_ptr + m[:, None] * K + 2 * pair[None, :], mask=rows, other=0.0)
        odd = tl.load(x_ptr + m[:, None] * K + 2 * pair[None, :] + 1, mask=rows, other=0.0)
        acc = tl.dot(even, low, acc, input_precision="ieee")
        acc = tl.dot(odd, high, acc, input_precision="ieee")
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc, mask=rows & columns)


class ModelNew(nn.Module):
    def forward(self, x, packed, scale, zero):
        x = x.contiguous()
        (m, k), n = x.shape, packed.shape[0]
        y = torch.empty(m, n, dtype=x.dtype, device=x.device)
        bm, bn = (32, 64) if x.is_cuda else (16, 32)
        grid = (triton.cdiv(m, bm), triton.cdiv(n, bn))
        linear_kernel[grid](x, packed, scale, zero, y, m, n, k, GROUP=k // scale.shape[1], BM=bm, BN=bn)
        return y
