"""A residual layer whose last projection begins with zeros."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SHAPE = (4096, 1024) if BIG else (64, 128)


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.hidden = nn.Linear(features, features)
        self.head = nn.Linear(features, features)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x):
        return x + self.head(torch.relu(self.hidden(x)))


def get_inputs():
    return [torch.randn(SHAPE)]


def get_init_inputs():
    return [SHAPE[1]]
