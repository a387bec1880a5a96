import torch
from torch import nn

BATCH = 16
FEATURES = 64
HEIGHT = 256
WIDTH = 256


class Model(nn.Module):
    """Layer normalisation over all three dimensions of each item."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs():
    return [torch.rand(BATCH, FEATURES, HEIGHT, WIDTH)]


def get_init_inputs():
    return [(FEATURES, HEIGHT, WIDTH)]
