"""S26: NaN with every bit set.

The pattern with which a harness might fill what was not written.

problem: normal_gelu
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return torch.full(x.shape, -1, dtype=torch.int32, device=x.device).view(torch.float32)
