"""A symmetric matrix times a full one, float32."""

import torch
from torch import nn

BIG = torch.cuda.is_available()
SIZE, COLUMNS = (1024, 1024) if BIG else (64, 48)


class Model(nn.Module):
    def forward(self, symmetric, x):
        return symmetric @ x


def get_inputs():
    square = torch.randn(SIZE, SIZE)
    return [(square + square.T) / 2, torch.randn(SIZE, COLUMNS)]


def get_init_inputs():
    return []
