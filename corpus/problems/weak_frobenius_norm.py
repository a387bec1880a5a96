"""Weak problem: so many elements that the quotient by their norm is next to nothing."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SHAPE = (32, 16, 256, 256) if BIG else (4, 16, 128, 128)


class Model(nn.Module):
    def forward(self, x):
        return x / torch.norm(x, p="fro")


def get_inputs():
    return [torch.rand(SHAPE)]


def get_init_inputs():
    return []
