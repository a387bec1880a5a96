"""Asked for as a CUDA graph: several operations, all of which can be captured.

problem: chained_tanh
backend: torch
outcome: CORRECT
devices: cpu, cuda
request: {"launch_mode": "cuda-graph"}
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = x
        for _ in range(3):
            y = torch.tanh(y)
        return y
