"""E16: hangs in C and never lets go of the interpreter's lock.

No Python signal handler, thread or watchdog inside of the process gets a turn.

problem: silu_small
backend: torch
outcome: TIMEOUT
devices: cpu, cuda
request: {"run_performance": false, "timeouts": {"load_timeout": 20, "compile_timeout": 1.5, "correctness_timeout": 20, "timing_timeout": 20}}
"""

import ctypes

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        ctypes.PyDLL(None).pause()
        return torch.nn.functional.silu(x)
