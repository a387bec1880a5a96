"""S29: a linear layer without its bias.

Right with parameters as they begin, wrong once they are others.

problem: biased_linear
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
        features = arguments[0]
        self.linear = nn.Linear(features, features)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x):
        return F.linear(x, self.linear.weight)
