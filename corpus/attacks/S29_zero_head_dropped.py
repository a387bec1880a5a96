"""S29: the input for a residual block whose last layer begins with zeros.

Right with parameters as they begin, wrong once they are others.

problem: zero_head
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        features = arguments[0]
        self.hidden = nn.Linear(features, features)
        self.head = nn.Linear(features, features)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x):
        return x.clone()
