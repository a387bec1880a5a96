"""Weak problem: rows so long that their mean magnitudes hardly differ."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SHAPE = (512, 65536) if BIG else (16, 65536)


class Model(nn.Module):
    def forward(self, x):
        return x / torch.mean(torch.abs(x), dim=1, keepdim=True)


def get_inputs():
    return [torch.rand(SHAPE)]


def get_init_inputs():
    return []
