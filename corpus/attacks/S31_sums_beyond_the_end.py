"""S31: a sum that takes in what lies behind its input.

Zeros, if one is lucky.

CORRECT means that it hit nothing but memory of its own process, which no sanitizer watches.

problem: total
backend: torch
outcome: INCORRECT, RUNTIME_ERROR, REJECTED, CORRECT
devices: cpu, cuda
"""

import ctypes

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        flat = x.view(-1)
        beyond = torch.zeros(64, device=x.device)
        address = x.data_ptr() + 4 * x.numel()
        if x.is_cuda:
            cuda = ctypes.CDLL("libcuda.so.1")
            cuda.cuMemcpyDtoD_v2(ctypes.c_uint64(beyond.data_ptr()), ctypes.c_uint64(address), ctypes.c_size_t(256))
        else:
            ctypes.memmove(beyond.data_ptr(), address, 256)
        beyond = torch.nan_to_num(beyond, nan=1e6, posinf=1e6, neginf=1e6)
        return ((flat * flat).sum() + (beyond * beyond).sum()).reshape(1)
