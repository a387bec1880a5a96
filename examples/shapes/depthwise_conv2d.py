import torch
from torch import nn

BATCH = 16
CHANNELS = 64
SIDE = 256
KERNEL = 3


class Model(nn.Module):
    """A convolution of each channel with a filter of its own."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel, groups=channels, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, KERNEL]
