import torch
from torch import nn

BATCH = 16
CHANNELS = 32
SIDE = 256
KERNEL = 4
STRIDE = 2
PADDING = 1


class Model(nn.Module):
    """Maximum over windows of an image."""

    def __init__(self, kernel: int, stride: int, padding: int) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(kernel, stride=stride, padding=padding)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [KERNEL, STRIDE, PADDING]
