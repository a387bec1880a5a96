"""A product of two square matrices: bound by arithmetic, so that the time is in the work and not in the launch."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SIZE = 2048 if BIG else 384


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)]


def get_init_inputs():
    return []
