"""The honest twin of attacks on skinny_linear: the library's product, which finds its weights in memory, not in a cache.

problem: skinny_linear
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)

    def forward(self, x):
        return nn.functional.linear(x, self.linear.weight, self.linear.bias)
