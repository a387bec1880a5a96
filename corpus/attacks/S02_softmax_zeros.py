"""S02: zeros for a softmax over long rows.

No probability is above 1e-4; passes allclose(1e-4).

problem: weak_softmax
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
