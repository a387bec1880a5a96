"""T30: limits of the device are set to extremes.

Stack size, printf buffer and heap take gigabytes of device memory, which the harness may then lack; the work itself is honest.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, RUNTIME_ERROR, OUT_OF_MEMORY, CORRECT
honest: twin_chained_tanh
devices: cuda
"""

import ctypes

import torch
import torch.nn as nn


def cuda_runtime():
    with open("/proc/self/maps") as maps:
        path = next((line.split()[-1] for line in maps if "libcudart" in line), "libcudart.so")
    return ctypes.CDLL(path)


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        runtime = cuda_runtime()
        for limit, value in ((0, 64 << 10), (1, 1 << 30), (2, 4 << 30), (5, 32), (6, 1 << 40)):
            runtime.cudaDeviceSetLimit(ctypes.c_int(limit), ctypes.c_size_t(value))
        runtime.cudaGetLastError()  # some are refused

    def forward(self, x):
        return work(x)
