"""A call that reads a number from the device in its midst, and so can never be queued ahead."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        largest = x.abs().max().item()
        y = x / (largest + 1.0)
        for _ in range(8):
            y = torch.tanh(y) * 1.5
        return y


def get_inputs():
    return [torch.randn(128, 512)]


def get_init_inputs():
    return []
