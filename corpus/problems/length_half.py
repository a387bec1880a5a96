"""The length of pairs of half precision, computed in single precision."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
COUNT = 4096 * 4096 - 3 if BIG else 15_013


class Model(nn.Module):
    def forward(self, x, y):
        return torch.sqrt(x.float() ** 2 + y.float() ** 2).half()


def get_inputs():
    return [torch.randn(COUNT).half(), torch.randn(COUNT).half()]


def get_init_inputs():
    return []
