"""torch.compile of the whole forward in its default mode.

problem: field_two_layer_mlp
backend: torch
outcome: CORRECT
devices: cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)
        self.compiled = torch.compile(self._run)

    def _run(self, x):
        return x + self.down(F.silu(self.up(x)))

    def forward(self, x):
        return self.compiled(x)
