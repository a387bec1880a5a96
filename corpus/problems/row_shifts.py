"""Adds a number per column to every row: an output that is nearly a broadcast."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
ROWS, COLUMNS = (8192, 4096) if BIG else (64, 512)


class Model(nn.Module):
    def forward(self, row):
        return torch.tanh(row).expand(ROWS, COLUMNS).contiguous()


def get_inputs():
    return [torch.randn(COLUMNS)]


def get_init_inputs():
    return []
