"""T03: a callback of the CUDA runtime wakes whoever does the work.

cudaLaunchHostFunc on a side stream; a callback may not launch kernels, so it sets a flag for a thread that was there all along.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cuda
"""

import ctypes
import threading

import torch
import torch.nn as nn


def cuda_runtime():
    with open("/proc/self/maps") as maps:
        path = next((line.split()[-1] for line in maps if "libcudart" in line), "libcudart.so")
    return ctypes.CDLL(path)


wake = threading.Semaphore(0)
todo = []


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def callback(_):
    wake.release()


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


def serve(side):
    while True:
        wake.acquire()
        x, y = todo.pop(0)
        with torch.cuda.stream(side):
            y.copy_(work(x))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = torch.cuda.Stream()
        self.bell = torch.cuda.Stream()
        self.runtime = cuda_runtime()
        threading.Thread(target=serve, args=(self.side,), daemon=True).start()

    def forward(self, x):
        y = torch.empty_like(x)
        todo.append((x, y))
        self.bell.wait_stream(torch.cuda.current_stream())
        if self.runtime.cudaLaunchHostFunc(ctypes.c_void_p(self.bell.cuda_stream), callback, None):
            raise RuntimeError("no callback")
        return y
