"""Subtraction of a moving average that a buffer keeps from call to call: the answer depends on state."""

import torch
from torch import nn

BIG = torch.cuda.is_available()
ROWS, COLUMNS = (4096, 2048) if BIG else (20, 48)


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.register_buffer("average", torch.zeros(columns))

    def forward(self, x):
        self.average.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x - self.average


def get_inputs():
    return [torch.randn(ROWS, COLUMNS) + 1]


def get_init_inputs():
    return [COLUMNS]
