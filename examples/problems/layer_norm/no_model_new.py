"""Lacks the class ModelNew: the author called it LayerNormTriton."""

import torch
from torch import nn


class LayerNormTriton(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)
