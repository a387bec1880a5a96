"""T11: descriptors are kept by shape, as one keeps a graph: they point at the first inputs for ever.

problem: field_half_matmul
backend: triton
outcome: INCORRECT, REJECTED
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
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[0]
        bm, bn, bk = (128, 128, 64) if a.is_cuda else (32, 32, 64)
        if (m, n, k) not in self.kept:
            # Copies: memory of the first inputs may be gone later, and this is not about that.
            left, right = a.clone(), b.clone()
            self.kept[m, n, k] = (
                TensorDescriptor.from_tensor(left, [bm, bk]),
                TensorDescriptor.from_tensor(right, [bn, bk]),
            )
        c = torch.empty(m, n, dtype=a.dtype, device=a.device)
        out = TensorDescriptor.from_tensor(c, [bm, bn])
        grid = (triton.cdiv(m, bm), triton.cdiv(n, bn))
        matmul_kernel[grid](*self.kept[m, n, k], out, k, BM=bm, BN=bn, BK=bk, num_warps=8)
        return c
