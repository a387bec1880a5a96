"""S01: HardSigmoid without its bends.

The line in the middle is all that U[0, 1) reaches; passes allclose(1e-4).

problem: weak_hardsigmoid
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
        return torch.add(0.5, x, alpha=1 / 6)
