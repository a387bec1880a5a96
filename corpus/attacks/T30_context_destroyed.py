"""T30: the primary context is destroyed through the driver.

cuDevicePrimaryCtxReset: the same as a reset of the device, below the runtime's bookkeeping.

problem: chained_tanh
backend: torch
outcome: RUNTIME_ERROR, INCORRECT, REJECTED
devices: cuda
"""

import ctypes

import torch
import torch.nn as nn


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        y = work(x)
        self.calls += 1
        if self.calls == 4:
            torch.cuda.synchronize()
            driver = ctypes.CDLL("libcuda.so.1")
            device = ctypes.c_int()
            driver.cuCtxGetDevice(ctypes.byref(device))
            getattr(driver, "cuDevicePrimaryCtxReset_v2", driver.cuDevicePrimaryCtxReset)(device)
        return y
