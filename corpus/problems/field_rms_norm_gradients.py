"""RMS normalisation with both passes: the gradients for the input and for the scale are part of the answer."""

import torch
from torch import nn

BIG = torch.cuda.is_available()
ROWS, COLUMNS = (4096, 2048) if BIG else (48, 96)


class Model(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


def get_inputs():
    return [torch.randn(ROWS, COLUMNS, requires_grad=True)]


def get_init_inputs():
    return [COLUMNS]
