"""A linear layer and GELU in its tanh form, float32."""

import torch
import torch.nn.functional as F
from torch import nn

BIG = torch.cuda.is_available()
ROWS, FEATURES, HIDDEN = (1024, 1024, 1024) if BIG else (32, 96, 64)


class Model(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.linear = nn.Linear(features, hidden)

    def forward(self, x):
        return F.gelu(self.linear(x), approximate="tanh")


def get_inputs():
    return [torch.randn(ROWS, FEATURES)]


def get_init_inputs():
    return [FEATURES, HIDDEN]
