"""S28: the other kind of variance.

Divided by the number, not by one less: half a percent or less.

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
        return x.mean(dim=1), x.var(dim=1, unbiased=False)
