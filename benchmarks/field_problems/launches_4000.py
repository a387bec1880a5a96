"""4,000 launches in one call: as many as the largest queue of a GPU holds, or more."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        for _ in range(2000):
            x = (x + 0.5) * 0.75
        return x


def get_inputs():
    return [torch.randn(16, 64)]


def get_init_inputs():
    return []
