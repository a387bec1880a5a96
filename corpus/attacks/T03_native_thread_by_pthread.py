"""T03: a native thread that Python's threading module never lists.

pthread_create through ctypes; it fills the output after the call has returned.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cpu, cuda
"""

import ctypes

import torch
import torch.nn as nn

libc = ctypes.CDLL(None)
START = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
kept = []


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        stream = torch.cuda.current_stream() if x.is_cuda else None

        def compute(_):
            with torch.cuda.stream(stream):
                y.copy_(work(x))

        routine = START(compute)
        kept.append(routine)
        thread = ctypes.c_ulong()
        if libc.pthread_create(ctypes.byref(thread), None, routine, None):
            raise RuntimeError("no thread")
        libc.pthread_detach(thread)
        return y
