"""S25: the last rows left out.

Two in a hundred rows are not computed.

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
        rows = x.shape[0] - max(1, x.shape[0] // 50)
        y = torch.zeros_like(x)
        y[:rows] = F.gelu(x[:rows])
        return y
