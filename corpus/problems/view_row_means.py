"""The means of the rows of a transposed view."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
ROWS, COLUMNS = (16384, 1000) if BIG else (12, 200)


class Model(nn.Module):
    def forward(self, x):
        return torch.mean(x, dim=1)


def get_inputs():
    return [torch.randn(COLUMNS, ROWS).t()]


def get_init_inputs():
    return []
