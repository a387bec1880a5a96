"""Writes into one of its inputs, as attention with a cache does, and returns a sum over it."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SLOTS, WIDTH = (8192, 2048) if BIG else (64, 256)


class Model(nn.Module):
    def forward(self, cache, x):
        cache[0] = x
        return cache.sum(dim=0)


def get_inputs():
    return [torch.randn(SLOTS, WIDTH), torch.randn(WIDTH)]


def get_init_inputs():
    return []
