"""300 small kernels in one call: what the host needs to launch them is most of what a caller waits for."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.scales = nn.ParameterList(nn.Parameter(torch.rand(width) + 0.5) for _ in range(layers))

    def forward(self, x):
        for scale in self.scales:
            x = torch.tanh(x * scale + 0.1)
        return x


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return [256, 100]
