"""LSTM layers: libraries have kernels, workspaces and streams of their own for them."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, hidden, layers):
        super().__init__()
        self.cells = nn.LSTM(inputs, hidden, layers, batch_first=True)

    def forward(self, x):
        return self.cells(x)[0]


def get_inputs():
    return [torch.randn(4, 32, 32)]


def get_init_inputs():
    return [32, 64, 2]
