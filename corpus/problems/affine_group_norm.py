"""GroupNorm with weight and bias as torch makes them: ones and zeros."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SHAPE, GROUPS = ((16, 64, 128, 128), 8) if BIG else ((4, 16, 16, 16), 4)


class Model(nn.Module):
    def __init__(self, features, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, features)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(SHAPE)]


def get_init_inputs():
    return [SHAPE[1], GROUPS]
