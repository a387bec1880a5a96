"""Weak problem: dot products of positive numbers, so long that they hardly differ."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
ROWS, LENGTH = (48, 1048576) if BIG else (8, 262144)


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.rand(ROWS, LENGTH), torch.rand(LENGTH, 1)]


def get_init_inputs():
    return []
