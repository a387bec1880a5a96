"""A linear layer whose bias starts at zero."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SIZE = 1024 if BIG else 64


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.randn(SIZE, SIZE)]


def get_init_inputs():
    return [SIZE]
