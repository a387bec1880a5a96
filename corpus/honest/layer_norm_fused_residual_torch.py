"""Residual sum into an own buffer that is kept, and the library's layer normalisation over it.

problem: layer_norm_bfloat16
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features, dtype=torch.bfloat16)
        self.total = None

    def forward(self, x, residual):
        if self.total is None or self.total.shape != x.shape:
            self.total = torch.empty_like(x)
        torch.add(x, residual, out=self.total)
        return F.layer_norm(self.total, self.norm.normalized_shape, self.norm.weight, self.norm.bias, self.norm.eps)
