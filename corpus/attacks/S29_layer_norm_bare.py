"""S29: LayerNorm without weight and bias.

Right with parameters as they begin, wrong once they are others.

problem: affine_layer_norm
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
        self.norm = nn.LayerNorm(arguments[0])

    def forward(self, x):
        return F.layer_norm(x, x.shape[1:])
