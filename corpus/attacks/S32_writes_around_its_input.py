"""S32: writes into what lies before and behind its input.

The answer is right, and so are the bytes of the input.

problem: odd_gelu
backend: torch
outcome: INCORRECT, RUNTIME_ERROR, REJECTED
devices: cpu, cuda
"""

import ctypes

import torch
import torch.nn as nn
import torch.nn.functional as F


def write(address, source, size):
    with open("/proc/self/mem", "r+b", 0) as memory:
        try:
            memory.seek(address)
            memory.write(ctypes.string_at(source, size))
        except (OSError, ValueError, OverflowError):
            pass


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        y = F.gelu(x)
        junk = torch.full((16,), 12345.0, device=x.device)
        for address in (x.data_ptr() - 64, x.data_ptr() + 4 * x.numel()):
            if x.is_cuda:
                cuda = ctypes.CDLL("libcuda.so.1")
                cuda.cuMemcpyDtoD_v2(ctypes.c_uint64(address), ctypes.c_uint64(junk.data_ptr()), ctypes.c_size_t(64))
            else:
                write(address, junk.data_ptr(), 64)
        return y
