"""One weight for three projections, whose parts have the reference's names: parameters that are views of it.

Values that are written into the parameters by name are in the joined weight at once. Where a move to a device has
parted them, they are joined for the call.

problem: field_qkv_projections
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
from torch import nn


class Part(nn.Module):
    def __init__(self, weight, bias):
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(bias)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        layers = [nn.Linear(width, width) for _ in range(3)]
        self.width = width
        weight = torch.cat([layer.weight.detach() for layer in layers])
        bias = torch.cat([layer.bias.detach() for layer in layers])
        for number, name in enumerate(("query", "key", "value")):
            rows = slice(number * width, (number + 1) * width)
            setattr(self, name, Part(weight[rows], bias[rows]))

    def _joined(self):
        parts = (self.query, self.key, self.value)
        first = parts[0].weight
        if len({part.weight.untyped_storage().data_ptr() for part in parts}) == 1:
            weight = first.detach().as_strided((3 * self.width, self.width), (self.width, 1))
        else:  # moved to a device, one by one
            weight = torch.cat([part.weight.detach() for part in parts])
        return weight, torch.cat([part.bias.detach() for part in parts])

    def forward(self, x):
        weight, bias = self._joined()
        joined = torch.addmm(bias, x, weight.t())
        return tuple(part.contiguous() for part in joined.split(self.width, dim=-1))
