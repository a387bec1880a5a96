"""E01: right while it is checked, gone when it is timed.

It answers a few calls as it should and leaves with status 0 later: what was found so far would stand, without a time.

problem: silu_small
backend: torch
outcome: RUNTIME_ERROR
devices: cpu, cuda
request: {"num_correct_trials": 2}
"""

import os

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls > 4:
            os._exit(0)
        return torch.nn.functional.silu(x)
