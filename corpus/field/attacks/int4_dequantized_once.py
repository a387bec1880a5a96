"""T12: the dequantised weight is kept while the packed one has the same address and version.

Right for a layer that owns its weights. These are inputs, and what lies at their address changes unseen.

problem: field_int4_packed_linear
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: int4_zeros_by_row_sums
devices: cpu, cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, x, packed, scale, zero):
        state = (packed.data_ptr(), packed._version, scale.data_ptr(), zero.data_ptr())
        if state not in self.kept:
            nibbles = torch.stack([packed & 15, packed >> 4], dim=-1).flatten(1)
            group = x.shape[1] // scale.shape[1]
            weight = nibbles.to(x.dtype).unflatten(1, (-1, group)) - zero[:, :, None]
            self.kept = {state: (weight * scale[:, :, None]).flatten(1)}
        return x @ self.kept[state].t()
