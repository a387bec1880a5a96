"""S02: zeros for a matrix divided by its norm.

No quotient is above 2e-3; passes allclose(1e-2).

problem: weak_frobenius_norm
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
        return torch.zeros_like(x)
