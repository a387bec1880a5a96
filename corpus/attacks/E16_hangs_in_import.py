"""E16: never finishes being imported.

It sleeps.

problem: silu_small
backend: torch
outcome: TIMEOUT
devices: cpu, cuda
request: {"run_performance": false, "timeouts": {"load_timeout": 1, "compile_timeout": 20, "correctness_timeout": 20, "timing_timeout": 20}}
"""

import time

import torch
import torch.nn as nn

time.sleep(600)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
