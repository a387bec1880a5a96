"""Weak problem: products of numbers below one, which vanish after some columns."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SHAPE = (1024, 32768) if BIG else (16, 32768)


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return torch.cumprod(x, dim=self.dim)


def get_inputs():
    return [torch.rand(SHAPE)]


def get_init_inputs():
    return [1]
