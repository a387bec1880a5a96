"""S25: every second element too large by what the other is too small.

The sum of the errors is zero, and so is their mean.

problem: normal_gelu
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        y = F.gelu(x)
        y[:, ::2] += 0.01
        y[:, 1::2] -= 0.01
        return y
