"""S04: the largest of the first half.

Passes allclose(1e-2): half of the reading.

problem: weak_max
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
        return x[:, : x.shape[1] // 2].amax(dim=1)


# Above is S04_max_first_half. Variants, with what differs:
#
# S04_min_first_half: the smallest of every other number.
#   problem: weak_min
#   -         return x[:, : x.shape[1] // 2].amax(dim=1)
#   +         return x[:, ::2].amin(dim=1)
