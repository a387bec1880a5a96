"""Convolutions of several kinds, for which libraries choose among many algorithms and want workspaces."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.pointwise = nn.Conv2d(channels, 2 * channels, 1)
        self.depthwise = nn.Conv2d(2 * channels, 2 * channels, 3, padding=1, groups=2 * channels)
        self.dilated = nn.Conv2d(2 * channels, channels, 3, padding=2, dilation=2)
        self.transposed = nn.ConvTranspose2d(channels, channels, 3, stride=2, padding=1, output_padding=1)
        self.volume = nn.Conv3d(1, 2, 3, padding=1)

    def forward(self, x):
        x = self.transposed(self.dilated(self.depthwise(self.pointwise(x))))
        return self.volume(x.unsqueeze(1))


def get_inputs():
    return [torch.randn(2, 8, 16, 16)]


def get_init_inputs():
    return [8]
