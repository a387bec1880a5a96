"""S27: one number for a whole matrix.

It broadcasts.

problem: weak_mean
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return torch.full((1,), 0.5, device=x.device)


# Above is S27_one_number. Variants, with what differs:
#
# S27_zero_dimensional: a tensor without dimensions for a matrix.
#   -         return torch.full((1,), 0.5, device=x.device)
#   +         return torch.tensor(0.5, device=x.device)
