"""S27: one row, expanded to the shape of all rows.

The shape is right, the values of one row are everywhere.

problem: normal_gelu
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

    def forward(self, x):
        return F.gelu(x[:1]).expand(x.shape)
