"""Submodules of its own kind, which hold bare parameters under the reference's names.

They are made last to first, by another initialiser, and get the reference's values by name.

problem: field_qkv_projections
backend: torch
outcome: CORRECT
devices: cpu, cuda
finding: S29
"""

import torch
from torch import nn


class Weights(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(width))
        self.weight = nn.Parameter(torch.empty(width, width).normal_(std=0.02))


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.value = Weights(width)
        self.key = Weights(width)
        self.query = Weights(width)

    def forward(self, x):
        return tuple(torch.addmm(p.bias, x, p.weight.t()) for p in (self.query, self.key, self.value))
