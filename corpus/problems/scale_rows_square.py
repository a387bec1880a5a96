"""A square matrix with a factor for each row."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SIZE = 4096 if BIG else 96


class Model(nn.Module):
    def forward(self, x, factors):
        return x * factors[:, None]


def get_inputs():
    return [torch.randn(SIZE, SIZE), torch.rand(SIZE) + 0.5]


def get_init_inputs():
    return []
