"""Weak problem: statistics over so many elements that they are those of the distribution."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SHAPE = (16, 32, 256, 256) if BIG else (4, 16, 128, 128)


class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.norm = nn.LayerNorm(shape)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.rand(SHAPE)]


def get_init_inputs():
    return [SHAPE[1:]]
