"""The terms x log x of an entropy, zero at zero."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
COUNT = 4096 * 4096 - 3 if BIG else 15_013


class Model(nn.Module):
    def forward(self, x):
        return torch.xlogy(x, x)


def get_inputs():
    return [torch.rand(COUNT)]


def get_init_inputs():
    return []
