"""A layer with parameters of its own, which begin as ones and zeros."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SHAPE = (4096, 4096) if BIG else (64, 512)


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return torch.tanh(x) * self.gain + self.shift


def get_inputs():
    return [torch.randn(SHAPE)]


def get_init_inputs():
    return [SHAPE[1]]
