"""Rotary embedding at given positions, adjacent pairs turned together, base 10000."""

import torch
from torch import nn

BIG = torch.cuda.is_available()
TOKENS, HEADS, WIDTH, LONGEST = (8192, 16, 64, 4096) if BIG else (20, 2, 32, 128)


class Model(nn.Module):
    def forward(self, x, positions):
        frequencies = 10000.0 ** (-torch.arange(0, x.shape[-1], 2, device=x.device, dtype=torch.float64) / x.shape[-1])
        angles = positions.double()[:, None] * frequencies
        cos, sin = angles.cos().to(x.dtype)[:, None, :], angles.sin().to(x.dtype)[:, None, :]
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)


def get_inputs():
    return [torch.randn(TOKENS, HEADS, WIDTH), torch.randint(0, LONGEST, (TOKENS,))]


def get_init_inputs():
    return []
