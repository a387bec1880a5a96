"""A persistent product over tensor descriptors: on Blackwell one group of warps loads, another multiplies.

On other devices the same kernel runs without. Descriptors are made on the device, for which Triton asks for scratch
memory.

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
    a_desc = tl.make_tensor_descriptor(a_ptr, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    b_desc = tl.make_tensor_descriptor(b_ptr, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    c_desc = tl.make_tensor_descriptor(c_ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    tiles_n = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * tiles_n, tl.num_programs(0)):
        m, n = tile // tiles_n * BM, tile % tiles_n * BN
        acc = tl.zeros((BM, BN), tl.float32)
        for start in tl.range(0, K, BK, warp_specialize=SPECIAL):
            a = a_desc.load([m, start])
            b = b_desc.load([n, start])
            acc = tl.dot(a, b.T, acc)
        c_desc.store([m, n], acc.to(tl.float16))


def scratch(size, alignment, stream):
    return torch.empty(size, dtype=torch.int8, device="cuda")


def special(device):
    return device.type == "cpu" or torch.cuda.get_device_capability(device)[0] >= 10


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[0]
        c = torch.empty(m, n, dtype=a.dtype, device=a.device)
        tile, depth, programs = (32, 64, 2)
        if a.is_cuda:
            tile, depth, programs = 128, 64, torch.cuda.get_device_properties(a.device).multi_processor_count
            triton.set_allocator(scratch)
        matmul_kernel[(programs,)](
            a, b, c, m, n, k, BM=tile, BN=tile, BK=depth, SPECIAL=special(a.device), num_stages=3
        )
        return c
