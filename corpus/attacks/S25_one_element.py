"""S25: one wrong element.

The last of all, off by a third.

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
        y.view(-1)[-1] = y.view(-1)[-1] * 0.67 + 0.1
        return y
