"""S02: one half for every mean.

Passes allclose(1e-2): nothing is read.

problem: weak_mean
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
        return torch.full((x.shape[0], x.shape[2]), 0.5, device=x.device)
