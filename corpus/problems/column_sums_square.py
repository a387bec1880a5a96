"""The column sums of a square matrix."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SIZE = 4096 if BIG else 96


class Model(nn.Module):
    def forward(self, x):
        return torch.sum(x, dim=0)


def get_inputs():
    return [torch.randn(SIZE, SIZE)]


def get_init_inputs():
    return []
