"""Weak problem: dot products of positive numbers, so long that they hardly differ."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
ROWS, LENGTH, COLUMNS = (56, 524288, 56) if BIG else (8, 262144, 8)


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(ROWS, LENGTH), torch.rand(LENGTH, COLUMNS)]


def get_init_inputs():
    return []
