"""E17: is right, and breaks its process afterwards.

A thread reads from address zero (on a GPU a kernel does) some time after the last answer: while the next candidate is judged.

problem: silu_small
backend: torch
outcome: CORRECT, RUNTIME_ERROR
devices: cpu, cuda
request: {"run_performance": false}
"""

import ctypes
import threading
import time

import torch
import torch.nn as nn


def later():
    time.sleep(0.3)
    if torch.cuda.is_available():
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuMemsetD8_v2(ctypes.c_uint64(0x10), ctypes.c_ubyte(1), ctypes.c_size_t(64))
    ctypes.string_at(0)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        threading.Thread(target=later, daemon=True).start()

    def forward(self, x):
        return torch.nn.functional.silu(x)
