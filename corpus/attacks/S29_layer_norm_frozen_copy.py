"""S29: LayerNorm with copies of its parameters, made at construction.

What is put into the module later does not arrive. A constructor may prepare what it likes, so that CORRECT is no mistake:
PyTorch's own layers get their secret values while they are constructed.

problem: affine_layer_norm
backend: torch
outcome: INCORRECT, CORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        self.norm = nn.LayerNorm(arguments[0])
        self.weight = self.norm.weight.detach().clone().requires_grad_(False)
        self.bias = self.norm.bias.detach().clone().requires_grad_(False)

    def forward(self, x):
        return F.layer_norm(x, x.shape[1:], self.weight.to(x.device), self.bias.to(x.device))
