"""S03: a mean over the first half.

Passes allclose(1e-2): half of the reading.

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
        return x[:, : x.shape[1] // 2].mean(dim=1)


# Above is S03_mean_sampled. Variants, with what differs:
#
# S03_sum_sampled: twice the sum of every other element.
#   problem: weak_sum
#   -         return x[:, : x.shape[1] // 2].mean(dim=1)
#   +         return x[:, ::2].sum(dim=1, keepdim=True) * 2
