"""A square product of standard normal numbers."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SIZE = 2048 if BIG else 256


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)]


def get_init_inputs():
    return []
