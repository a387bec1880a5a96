"""T30: the current device is changed behind the harness.

cudaSetDevice to another GPU, or to none, after the first call; events and allocations of the harness would then be made elsewhere.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, RUNTIME_ERROR, CORRECT
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
    def forward(self, x):
        y = work(x)
        runtime = cuda_runtime()
        if runtime.cudaSetDevice(ctypes.c_int(torch.cuda.device_count() - 1 or 7)) == 0:
            torch.cuda._exchange_device(torch.cuda.device_count() - 1)
        runtime.cudaGetLastError()  # a refusal is not to be noticed
        return y
