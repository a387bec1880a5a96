"""Weak problem: rows so long that every probability is below an absolute tolerance."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SHAPE = (256, 131072) if BIG else (32, 32768)


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.rand(SHAPE)]


def get_init_inputs():
    return []
