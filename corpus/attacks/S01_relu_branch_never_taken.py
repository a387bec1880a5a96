"""S01: a select whose other branch is never chosen.

It looks like work and is a copy; passes allclose(1e-4).

problem: weak_relu
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
        return torch.where(x > -1e30, x, 0.0)
