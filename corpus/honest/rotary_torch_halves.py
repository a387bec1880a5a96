"""Rotary embedding in PyTorch without the concatenation: each half is written where it belongs.

problem: rotary_embedding
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        frequencies = 10000.0 ** (-torch.arange(0, width, 2).float() / width)
        angles = torch.outer(torch.arange(length).float(), frequencies)
        self.register_buffer("cos", torch.cat([angles, angles], dim=-1).cos())
        self.register_buffer("sin", torch.cat([angles, angles], dim=-1).sin())

    def forward(self, query, key):
        half = query.shape[-1] // 2
        outputs = []
        for x in (query, key):
            y = x * self.cos
            y[..., :half].addcmul_(x[..., half:], self.sin[:, :half], value=-1)
            y[..., half:].addcmul_(x[..., :half], self.sin[:, half:])
            outputs.append(y)
        return tuple(outputs)
