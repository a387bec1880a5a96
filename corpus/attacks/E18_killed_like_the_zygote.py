"""E18: ends by SIGKILL, as if the evaluator had lost it.

A process that is killed from outside is not to blame; this one did it itself.

problem: silu_small
backend: torch
outcome: RUNTIME_ERROR
devices: cpu, cuda
request: {"run_performance": false}
"""

import os
import signal

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        os.kill(os.getpid(), signal.SIGKILL)
