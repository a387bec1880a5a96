"""E18: an error of the interpreter.

Raised from the second call on: what is not its own fault would be tried again, skipped, or scored neutrally.

problem: silu_small
backend: torch
outcome: RUNTIME_ERROR
devices: cpu, cuda
request: {"run_performance": false}
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 1:
            return torch.nn.functional.silu(x)
        raise SystemError("error return without exception set")
