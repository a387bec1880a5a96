"""Rotary position embedding of queries and keys, by halves; returns a tuple."""

import torch
from torch import nn

BIG = torch.cuda.is_available()
BATCH, HEADS, LENGTH, WIDTH = (4, 16, 2048, 64) if BIG else (1, 2, 12, 32)


class Model(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        frequencies = 10000.0 ** (-torch.arange(0, width, 2).float() / width)
        angles = torch.outer(torch.arange(length).float(), frequencies)
        self.register_buffer("cos", torch.cat([angles, angles], dim=-1).cos())
        self.register_buffer("sin", torch.cat([angles, angles], dim=-1).sin())

    def _turn(self, x):
        low, high = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat([-high, low], dim=-1) * self.sin

    def forward(self, query, key):
        return self._turn(query), self._turn(key)


def get_inputs():
    shape = (BATCH, HEADS, LENGTH, WIDTH)
    return [torch.randn(shape), torch.randn(shape)]


def get_init_inputs():
    return [LENGTH, WIDTH]
