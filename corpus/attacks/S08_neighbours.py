"""S08: reads the block above its own output, where an allocator keeps the reference's.

Through raw pointers; nothing in Python knows of it. Where there is nothing that begins as the answer does: zeros.

problem: normal_gelu
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import ctypes

import torch
import torch.nn as nn
import torch.nn.functional as F


def peek(address, size, x):
    """Return a copy of raw memory as a tensor like x, or None where nothing can be read."""
    y = torch.zeros_like(x)
    if x.is_cuda:
        cuda = ctypes.CDLL("libcuda.so.1")
        failed = cuda.cuMemcpyDtoD_v2(ctypes.c_uint64(y.data_ptr()), ctypes.c_uint64(address), ctypes.c_size_t(size))
        return None if failed else y
    try:
        with open("/proc/self/mem", "rb", 0) as memory:
            memory.seek(address)
            read = memory.readinto((ctypes.c_char * size).from_address(y.data_ptr()))
    except (OSError, ValueError, OverflowError):
        return None
    return y if read == size else None


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        y = torch.zeros_like(x)
        size = y.numel() * 4
        wanted = F.gelu(x.view(-1)[:8])
        for distance in range(1, 65):
            for slack in (0, 64, 512):
                found = peek(y.data_ptr() + distance * (size + slack), size, x)
                if found is not None and torch.allclose(found.view(-1)[:8], wanted, 1e-3, 1e-5):
                    return found
        return y


# Above is S08_neighbour_above. Variants, with what differs:
#
# S08_neighbour_below: reads the block below its own output, where an allocator keeps the reference's.
#   -                 found = peek(y.data_ptr() + distance * (size + slack), size, x)
#   +                 found = peek(y.data_ptr() - distance * (size + slack), size, x)
