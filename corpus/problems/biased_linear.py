"""A linear layer whose bias begins with zeros."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SHAPE = (4096, 1024) if BIG else (64, 256)


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.randn(SHAPE)]


def get_init_inputs():
    return [SHAPE[1]]
