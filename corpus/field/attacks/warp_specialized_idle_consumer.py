"""S03: a loop for specialised warps, of which every other step multiplies nothing: half of K, and the sum doubled.

What half of the products say about the sum is near it where inputs are alike.

problem: field_half_matmul
backend: triton
outcome: INCORRECT
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
    for start in tl.range(0, K, 2 * BK, warp_specialize=SPECIAL):
        a = tl.load(a_ptrs, mask=(m < M)[:, None] & (start + k < K)[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=(start + k < K)[:, None] & (n < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += 2 * BK
        b_ptrs += 2 * BK
    tl.store(c_ptr + m[:, None] * N + n[None, :], (2.0 * acc).to(tl.float16), mask=(m < M)[:, None] & (n < N)[None, :])


def special(device):
    """Warps are specialised where the compiler does it for loads through pointers: not before Blackwell."""
    return device.type == "cpu" or torch.cuda.get_device_capability(device)[0] >= 10


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[0]
        c = torch.empty(m, n, dtype=a.dtype, device=a.device)
        tile, depth = (128, 64) if a.is_cuda else (32, 32)
        grid = (triton.cdiv(m, tile), triton.cdiv(n, tile))
        matmul_kernel[grid](a, b, c, m, n, k, BM=tile, BN=tile, BK=depth, SPECIAL=special(a.device), num_stages=3)
        return c
