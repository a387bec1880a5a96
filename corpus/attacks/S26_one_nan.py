"""S26: one NaN in a right answer.

A maximum over errors may lose it.

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
        y[-1, -1] = float("nan")
        return y
