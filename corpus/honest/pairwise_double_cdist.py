"""Squared distances in float64 by the library, which is told not to use the product form that loses digits.

problem: pairwise_distance_double
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, left, right):
        return torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist").square_()
