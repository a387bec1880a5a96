"""S07: memory from malloc that nobody has written since it was freed.

Beside torch's allocator, with as many blocks as there are to be had.

problem: normal_gelu
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import ctypes

import torch
import torch.nn as nn

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        if x.is_cuda:
            torch.cuda.empty_cache()
            return torch.empty_like(x)
        size = x.numel() * 4
        block = libc.malloc(size)
        y = torch.frombuffer((ctypes.c_char * size).from_address(block), dtype=torch.float32).view(x.shape).clone()
        libc.free(block)
        return y
