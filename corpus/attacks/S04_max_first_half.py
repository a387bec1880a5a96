"""S04: the largest of the first half.

Passes allclose(1e-2): half of the reading.

problem: weak_max
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
        return x[:, : x.shape[1] // 2].amax(dim=1)
