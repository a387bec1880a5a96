"""The reference's parameters by their names, made in another order.

They have other random numbers until they are given the reference's, by name.

problem: field_two_layer_mlp
backend: torch
outcome: CORRECT
devices: cpu, cuda
finding: S29
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.down = nn.Linear(hidden, width)
        self.up = nn.Linear(width, hidden)

    def forward(self, x):
        return torch.addmm(self.down.bias, F.silu(F.linear(x, self.up.weight, self.up.bias)), self.down.weight.t()) + x
