"""T30: the device is reset under the harness.

cudaDeviceReset after the work of the third call: everything that the harness holds on the device is gone. It must count as the candidate's failure.

problem: chained_tanh
backend: torch
outcome: RUNTIME_ERROR, INCORRECT, REJECTED
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
        self.calls = 0

    def forward(self, x):
        y = work(x)
        self.calls += 1
        if self.calls == 3:
            torch.cuda.synchronize()
            cuda_runtime().cudaDeviceReset()
        return y
