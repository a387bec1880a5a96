"""A linear layer and ReLU in a model that was turned to half precision."""

import torch
from torch import nn

BIG = torch.cuda.is_available()
ROWS, FEATURES, HIDDEN = (2048, 2048, 2048) if BIG else (32, 64, 48)


class Model(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.linear = nn.Linear(features, hidden).half()

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn(ROWS, FEATURES).half()]


def get_init_inputs():
    return [FEATURES, HIDDEN]
