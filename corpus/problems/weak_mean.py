"""Weak problem: means of so many uniform numbers that they hardly differ."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SHAPE = (8, 262144, 16) if BIG else (2, 262144, 2)


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return torch.mean(x, dim=self.dim)


def get_inputs():
    return [torch.rand(SHAPE)]


def get_init_inputs():
    return [1]
