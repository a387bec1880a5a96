"""Rotary position embedding that pairs the first half of each row with the second."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
LENGTH, WIDTH = (16384, 128) if BIG else (12, 32)


class Model(nn.Module):
    def forward(self, x, angles):
        half = x.shape[1] // 2
        first, second = x[:, :half], x[:, half:]
        cos, sin = torch.cos(angles), torch.sin(angles)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=1)


def get_inputs():
    return [torch.randn(LENGTH, WIDTH), torch.rand(LENGTH, WIDTH // 2) * 6.0]


def get_init_inputs():
    return []
