"""Weak problem: statistics over so many elements that they are those of the distribution."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SHAPE = (8, 16, 512, 512) if BIG else (2, 2, 512, 512)


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.InstanceNorm2d(features)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.rand(SHAPE)]


def get_init_inputs():
    return [SHAPE[1]]
