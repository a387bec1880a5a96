"""Batch normalisation of images with frozen statistics, and ReLU."""

import torch
from torch import nn

BIG = torch.cuda.is_available()
BATCH, CHANNELS, SIDE = (32, 64, 112) if BIG else (2, 6, 12)


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bn = nn.BatchNorm2d(channels).eval()

    def forward(self, x):
        return torch.relu(self.bn(x))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS]
