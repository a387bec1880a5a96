"""The square root of the positive part, of inputs that are all positive."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
COUNT = 4096 * 4096 - 3 if BIG else 15_013


class Model(nn.Module):
    def forward(self, x):
        return torch.sqrt(torch.relu(x))


def get_inputs():
    return [torch.rand(COUNT)]


def get_init_inputs():
    return []
