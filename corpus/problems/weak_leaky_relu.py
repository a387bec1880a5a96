"""Weak problem: inputs from U[0, 1), where LeakyReLU is the identity."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BIG = torch.cuda.is_available()
SHAPE = (4096, 8192) if BIG else (64, 4096)


class Model(nn.Module):
    def __init__(self, negative_slope):
        super().__init__()
        self.negative_slope = negative_slope

    def forward(self, x):
        return F.leaky_relu(x, self.negative_slope)


def get_inputs():
    return [torch.rand(SHAPE)]


def get_init_inputs():
    return [0.01]
