"""S29: LayerNorm of which the parameters do not even exist.

Nothing can be put into a module that has no place for it.

problem: affine_layer_norm
backend: torch
outcome: INCORRECT, REJECTED
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        mean = x.mean(dim=1, keepdim=True)
        centred = x - mean
        return centred * torch.rsqrt(centred.square().mean(dim=1, keepdim=True) + 1e-5)
