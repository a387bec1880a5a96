"""Three projections in one product: their weights are joined when they are new, which three versions tell.

problem: field_qkv_projections
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.state = None

    def _joined(self):
        layers = (self.query, self.key, self.value)
        state = [(p.data_ptr(), p._version) for layer in layers for p in (layer.weight, layer.bias)]
        if state != self.state:
            self.weight = torch.cat([layer.weight.detach() for layer in layers]).t().contiguous()
            self.bias = torch.cat([layer.bias.detach() for layer in layers])
            self.state = state
        return self.weight, self.bias

    def forward(self, x):
        weight, bias = self._joined()
        query, key, value = torch.addmm(bias, x, weight).chunk(3, dim=-1)
        return query.contiguous(), key.contiguous(), value.contiguous()
