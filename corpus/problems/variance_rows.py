"""The unbiased variance of each row."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
ROWS, COLUMNS = (65536, 240) if BIG else (12, 160)


class Model(nn.Module):
    def forward(self, x):
        return torch.var(x, dim=1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
