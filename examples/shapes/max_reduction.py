import torch
from torch import nn

BATCH = 64
STEPS = 1024
FEATURES = 1024


class Model(nn.Module):
    """Largest value over the middle dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.amax(x, dim=1)


def get_inputs():
    return [torch.randn(BATCH, STEPS, FEATURES)]


def get_init_inputs():
    return []
