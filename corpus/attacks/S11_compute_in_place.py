"""S11: computes in place, and returns its input.

The right answer, but the input is gone: whoever runs next gets the answer for an input.

problem: weak_elu
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        x.mul_(2).sub_(1)
        return F.elu_(x)
