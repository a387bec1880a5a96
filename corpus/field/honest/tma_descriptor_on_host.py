"""Descriptors made on the host, anew at each call for the memory that the call was given.

problem: field_half_matmul
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def matmul_kernel(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        acc = tl.dot(a_desc.load([m, start]), b_desc.load([n, start]).T, acc)
    c_desc.store([m, n], acc.to(tl.float16))


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[0]
        c = torch.empty(m, n, dtype=a.dtype, device=a.device)
        bm, bn, bk = (128, 128, 64) if a.is_cuda else (32, 32, 64)
        left = TensorDescriptor.from_tensor(a, [bm, bk])
        right = TensorDescriptor.from_tensor(b, [bn, bk])
        out = TensorDescriptor.from_tensor(c, [bm, bn])
        matmul_kernel[(triton.cdiv(m, bm), triton.cdiv(n, bn))](left, right, out, k, BM=bm, BN=bn, BK=bk, num_warps=8)
        return c
