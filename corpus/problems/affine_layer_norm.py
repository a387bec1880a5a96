"""Layer normalisation, float32, with the parameters that PyTorch begins with: ones and zeros."""

import torch
from torch import nn

BIG = torch.cuda.is_available()
ROWS, FEATURES = (8192, 4096) if BIG else (8, 256)


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(ROWS, FEATURES)]


def get_init_inputs():
    return [FEATURES]
