"""Batch normalisation by the statistics of the batch itself, as in training; running statistics are kept."""

import torch
from torch import nn

BIG = torch.cuda.is_available()
BATCH, CHANNELS, LENGTH = (64, 128, 2048) if BIG else (3, 4, 40)


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bn = nn.BatchNorm1d(channels)

    def forward(self, x):
        return self.bn(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, LENGTH)]


def get_init_inputs():
    return [CHANNELS]
