"""Takes device memory until there is none (for a GPU)."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        hoard = []
        while True:
            hoard.append(torch.ones(1 << 28, device=a.device))
