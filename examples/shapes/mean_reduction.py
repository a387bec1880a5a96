import torch
from torch import nn

BATCH = 64
STEPS = 1024
FEATURES = 1024


class Model(nn.Module):
    """Mean over the middle dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.mean(x, dim=1)


def get_inputs():
    return [torch.rand(BATCH, STEPS, FEATURES)]


def get_init_inputs():
    return []
