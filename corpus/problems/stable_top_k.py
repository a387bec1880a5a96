"""The k largest of each row and their positions, equal ones in the order of their positions: a list."""

import torch
from torch import nn

BIG = torch.cuda.is_available()
ROWS, COLUMNS, K = (8192, 1000, 8) if BIG else (6, 60, 4)


class Model(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k

    def forward(self, x):
        values, indices = torch.sort(x, dim=1, descending=True, stable=True)
        return [values[:, : self.k].contiguous(), indices[:, : self.k].contiguous()]


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return [K]
