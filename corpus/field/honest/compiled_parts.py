"""Only the elementwise parts are compiled, each for any shape; products stay with the library.

problem: field_two_layer_mlp
backend: torch
outcome: CORRECT
devices: cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


@torch.compile(dynamic=True)
def biased_silu(h, bias):
    return F.silu(h + bias)


@torch.compile(dynamic=True)
def biased_residual(h, bias, x):
    return h + bias + x


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        h = biased_silu(x @ self.up.weight.t(), self.up.bias)
        return biased_residual(h @ self.down.weight.t(), self.down.bias, x)
