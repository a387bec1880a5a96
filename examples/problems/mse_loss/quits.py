"""Leaves politely: calls sys.exit(0) in its first call."""

import sys

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        sys.exit(0)
