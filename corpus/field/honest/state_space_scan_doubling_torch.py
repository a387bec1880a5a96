"""The scan by doubling in torch: after each pass a step knows of twice as many before it.

problem: field_diagonal_scan
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, dt):
        step = F.softplus(dt)
        a, b = (-step).exp(), step * x
        shift = 1
        while shift < x.shape[1]:
            before_a = F.pad(a[:, :-shift], (0, 0, shift, 0), value=1.0)
            before_b = F.pad(b[:, :-shift], (0, 0, shift, 0))
            a, b = a * before_a, a * before_b + b
            shift *= 2
        return b
