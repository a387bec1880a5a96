"""Weak problem: batch statistics over so many elements that they are those of the distribution."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SHAPE = (32, 16, 256, 256) if BIG else (16, 4, 128, 128)


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm2d(features)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.rand(SHAPE)]


def get_init_inputs():
    return [SHAPE[1]]
