"""E17: leaves an error that shows up in the next call of somebody else.

An assertion on the device is reported by whatever synchronises next; the outputs were right.

problem: silu_small
backend: torch
outcome: RUNTIME_ERROR
devices: cuda
request: {"run_performance": false, "num_correct_trials": 3}
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        y = torch.nn.functional.silu(x)
        if self.calls > 2:
            torch._assert_async(torch.zeros(1, device=x.device, dtype=torch.bool))
        return y
