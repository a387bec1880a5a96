"""Weak problem: rows so long that their norms hardly differ."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SHAPE = (512, 65536) if BIG else (16, 65536)


class Model(nn.Module):
    def forward(self, x):
        return x / torch.norm(x, p=2, dim=1, keepdim=True)


def get_inputs():
    return [torch.rand(SHAPE)]


def get_init_inputs():
    return []
