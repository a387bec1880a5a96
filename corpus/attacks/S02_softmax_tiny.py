"""S02: 1e-30 for a softmax over long rows.

Neither zero nor in any way like a probability; passes allclose(1e-4).

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
        return torch.full_like(x, 1e-30)
