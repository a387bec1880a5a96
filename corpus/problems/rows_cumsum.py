"""Running sums along the rows of a float32 matrix."""

import torch
from torch import nn

BIG = torch.cuda.is_available()
ROWS, COLUMNS = (8192, 4000) if BIG else (6, 100)


class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
