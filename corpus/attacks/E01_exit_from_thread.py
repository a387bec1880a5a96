"""E01: another thread ends the process between an answer and the next question.

The exit status is that of a process that has done its work.

problem: silu_small
backend: torch
outcome: RUNTIME_ERROR, INCORRECT
devices: cpu, cuda
request: {"run_performance": false}
"""

import os
import threading
import time

import torch
import torch.nn as nn


def leave():
    time.sleep(0.2)
    os._exit(0)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        threading.Thread(target=leave, daemon=True).start()

    def forward(self, x):
        time.sleep(0.25)
        return torch.zeros_like(x)
