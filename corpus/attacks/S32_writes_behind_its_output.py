"""S32: writes eight numbers behind the output that it returns.

They go into memory of the allocator's: into a neighbour, or nowhere.

problem: odd_gelu
backend: torch
outcome: CORRECT, INCORRECT, RUNTIME_ERROR, REJECTED
devices: cpu, cuda
"""

import ctypes

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        y = F.gelu(x)
        neighbours = [torch.empty_like(x).copy_(x) for _ in range(4)]
        junk = torch.full((8,), 12345.0, device=x.device)
        address = y.data_ptr() + 4 * y.numel()
        if x.is_cuda:
            cuda = ctypes.CDLL("libcuda.so.1")
            cuda.cuMemcpyDtoD_v2(ctypes.c_uint64(address), ctypes.c_uint64(junk.data_ptr()), ctypes.c_size_t(32))
        else:
            ctypes.memmove(address, junk.data_ptr(), 32)
        del neighbours
        return y
