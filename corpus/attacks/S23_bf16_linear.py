"""S23: weights rounded to bfloat16, once.

A layer that was quantised although nobody asked for it.

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
        return F.linear(x.bfloat16().float(), self.linear.weight.bfloat16().float(), self.linear.bias)
