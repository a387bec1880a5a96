"""The product of two float32 matrices."""

import torch
from torch import nn

BIG = torch.cuda.is_available()
SIZE = 1024 if BIG else 64


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)]


def get_init_inputs():
    return []
