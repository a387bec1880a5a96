"""E16: spins for ever, but only once it is being checked.

The first call is as quick as any.

problem: silu_small
backend: torch
outcome: TIMEOUT
devices: cpu, cuda
request: {"run_performance": false, "timeouts": {"load_timeout": 20, "compile_timeout": 20, "correctness_timeout": 1.5, "timing_timeout": 20}}
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        while self.calls > 1:
            pass
        return torch.nn.functional.silu(x)
