"""S26: NaN for everything.

Nothing compares as different with a rule that asks whether the difference is greater.

problem: normal_gelu
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
        return torch.full_like(x, float("nan"))
