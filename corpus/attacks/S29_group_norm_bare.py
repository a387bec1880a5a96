"""S29: GroupNorm without weight and bias.

Right with parameters as they begin, wrong once they are others.

problem: affine_group_norm
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        features, groups = arguments
        self.norm = nn.GroupNorm(groups, features)

    def forward(self, x):
        return F.group_norm(x, self.norm.num_groups)
