"""How often each number occurs among int32 numbers; counts are int64."""

import torch
from torch import nn

BIG = torch.cuda.is_available()
COUNT, BINS = (1 << 24, 256) if BIG else (6000, 64)


class Model(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def forward(self, x):
        return torch.bincount(x, minlength=self.bins)


def get_inputs():
    return [torch.randint(0, BINS, (COUNT,), dtype=torch.int32)]


def get_init_inputs():
    return [BINS]
