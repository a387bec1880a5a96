import torch
from torch import nn

BATCH = 64
CHANNELS = 64
GROUPS = 8
HEIGHT = 128
WIDTH = 128


class Model(nn.Module):
    """Group normalisation."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS, GROUPS]
