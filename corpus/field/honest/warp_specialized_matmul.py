"""A product whose loop over the inner dimension asks for specialised warps where the device has what they need.

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
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPECIAL: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a_ptrs = a_ptr + m[:, None] * K + k[None, :]
    b_ptrs = b_ptr + n[None, :] * K + k[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in tl.range(0, K, BK, warp_specialize=SPECIAL):
        a = tl.load(a_ptrs, mask=(m < M)[:, None] & (start + k < K)[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=(start + k < K)[:, None] & (n < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BK
        b_ptrs += BK
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc.to(tl.float16), mask=(m < M)[:, None] & (n < N)[None, :])


def special(device):
    """Warps are specialised where the compiler does it for loads through pointers: not before Blackwell."""
    return device.type == "cpu" or torch.cuda.get_device_capability(device)[0] >= 10


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[0]
        c = torch.empty(m, n, dtype=a.dtype, device=a.device)
        tile, depth = (128, 64) if a.is_cuda else (32, 64)
        grid = (triton.cdiv(m, tile), triton.cdiv(n, tile))
        matmul_kernel[grid](a, b, c, m, n, k, BM=tile, BN=tile, BK=depth, SPECIAL=special(a.device), num_stages=3)
        return c
