"""S23: sums kept in half precision.

Squares are right, their sum is not.

problem: mean_and_variance
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
        h = x.half()
        mean = h.mean(dim=1, dtype=torch.float16)
        return mean.float(), (h.var(dim=1)).float()
