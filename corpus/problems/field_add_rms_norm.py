"""The residual is added and the sum normalised by its RMS; both are returned."""

import torch
from torch import nn

BIG = torch.cuda.is_available()
ROWS, FEATURES = (8192, 4096) if BIG else (16, 200)


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x, residual):
        total = x + residual
        normed = total * torch.rsqrt(total.square().mean(-1, keepdim=True) + 1e-6) * self.weight
        return normed, total


def get_inputs():
    return [torch.randn(ROWS, FEATURES), torch.randn(ROWS, FEATURES)]


def get_init_inputs():
    return [FEATURES]
