"""A tensor over its own largest magnitude."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
ROWS, COLUMNS = (16384, 1000) if BIG else (12, 200)


class Model(nn.Module):
    def forward(self, x):
        return x / x.abs().max()


def get_inputs():
    return [torch.randn(ROWS, COLUMNS) - 1.0]


def get_init_inputs():
    return []
