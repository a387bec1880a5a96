"""E16: stops itself, and every signal that can be ignored is.

A stopped process ignores everything but SIGCONT and SIGKILL.

problem: silu_small
backend: torch
outcome: TIMEOUT, INCORRECT
devices: cpu, cuda
request: {"run_performance": false, "timeouts": {"load_timeout": 20, "compile_timeout": 1.5, "correctness_timeout": 20, "timing_timeout": 20}}
"""

import os
import signal

import torch
import torch.nn as nn

for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)


class ModelNew(nn.Module):
    def forward(self, x):
        os.kill(os.getpid(), signal.SIGSTOP)
        return torch.zeros_like(x)
