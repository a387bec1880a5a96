"""Rows are read and written through tensor descriptors that the kernel makes: the copy engine does the addressing.

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
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a_desc = tl.make_tensor_descriptor(a_ptr, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    b_desc = tl.make_tensor_descriptor(b_ptr, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    c_desc = tl.make_tensor_descriptor(c_ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    tiles_n = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * tiles_n, tl.num_programs(0)):
        m, n = tile // tiles_n * BM, tile % tiles_n * BN
        acc = tl.zeros((BM, BN), tl.float32)
        for start in tl.range(0, K, BK):
            a = a_desc.load([m, start])
            b = b_desc.load([n, start])
            acc = tl.dot(a, b.T, acc)
        c_desc.store([m, n], acc.to(tl.float16))


def scratch(size, alignment, stream):
    return torch.empty(size, dtype=torch.int8, device="cuda")


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[0]
        c = torch.empty(m, n, dtype=a.dtype, device=a.device)
        if a.is_cuda:
            triton.set_allocator(scratch)
            matmul_kernel[(264,)](a, b, c, m, n, k, BM=64, BN=128, BK=64, num_stages=3)
        else:
            matmul_kernel[(1,)](a, b, c, m, n, k, BM=32, BN=64, BK=32)
        return c
