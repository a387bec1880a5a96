"""The third power of inputs that are all positive."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
COUNT = 4096 * 4096 - 3 if BIG else 15_013


class Model(nn.Module):
    def forward(self, x):
        return x**3


def get_inputs():
    return [torch.rand(COUNT) + 0.1]


def get_init_inputs():
    return []
