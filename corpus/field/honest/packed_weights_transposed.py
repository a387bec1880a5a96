"""Both weights are transposed at the first call, and again when a weight's address or version is another one.

problem: field_two_layer_mlp
backend: torch
outcome: CORRECT
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
        self.kept = {}

    def _transposed(self, name):
        weight = getattr(self, name).weight
        state = (weight.data_ptr(), weight._version, weight.dtype, weight.device)
        if name not in self.kept or self.kept[name][0] != state:
            self.kept[name] = state, weight.detach().t().contiguous()
        return self.kept[name][1]

    def forward(self, x):
        hidden = F.silu(torch.addmm(self.up.bias, x, self._transposed("up")))
        return x + torch.addmm(self.down.bias, hidden, self._transposed("down"))
