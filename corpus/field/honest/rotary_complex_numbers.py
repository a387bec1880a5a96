"""Pairs are complex numbers, turned in place in a copy by one multiplication; frequencies are kept by width.

problem: field_rotary_positions
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.frequencies = {}

    def forward(self, x, positions):
        width = x.shape[-1]
        if (width, x.device) not in self.frequencies:
            exponents = -torch.arange(0, width, 2, dtype=torch.float64, device=x.device) / width
            self.frequencies[width, x.device] = 10000.0**exponents
        angles = positions.double()[:, None] * self.frequencies[width, x.device]
        factors = torch.polar(torch.ones_like(angles), angles).to(torch.complex64)[:, None]
        copy = x.clone(memory_format=torch.contiguous_format)
        torch.view_as_complex(copy.unflatten(-1, (-1, 2))).mul_(factors)
        return copy
