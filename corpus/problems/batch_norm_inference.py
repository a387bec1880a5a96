"""BatchNorm with its running statistics."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
BATCH, CHANNELS = (4096, 1024) if BIG else (40, 12)


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels).eval()

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS) * 0.9 + 0.1]


def get_init_inputs():
    return [CHANNELS]
