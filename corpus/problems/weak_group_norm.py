"""Weak problem: statistics over so many elements that they are those of the distribution."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SHAPE, GROUPS = ((16, 32, 256, 256), 8) if BIG else ((2, 8, 256, 256), 2)


class Model(nn.Module):
    def __init__(self, features, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, features)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.rand(SHAPE)]


def get_init_inputs():
    return [SHAPE[1], GROUPS]
