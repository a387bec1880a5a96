"""A lower triangular matrix times a full one, float32."""

import torch
from torch import nn

BIG = torch.cuda.is_available()
SIZE, COLUMNS = (1024, 1024) if BIG else (64, 48)


class Model(nn.Module):
    def forward(self, lower, x):
        return lower @ x


def get_inputs():
    return [torch.tril(torch.randn(SIZE, SIZE)), torch.randn(SIZE, COLUMNS)]


def get_init_inputs():
    return []
