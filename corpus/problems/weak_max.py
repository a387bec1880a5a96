"""Weak problem: the largest of very many uniform numbers, which is one."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SHAPE = (128, 4096, 64) if BIG else (8, 4096, 32)


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return torch.max(x, dim=self.dim).values


def get_inputs():
    return [torch.rand(SHAPE)]


def get_init_inputs():
    return [1]
