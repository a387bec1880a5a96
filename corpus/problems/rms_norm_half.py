"""RMS normalisation of a model in half precision."""

import torch
from torch import nn

BIG = torch.cuda.is_available()
ROWS, FEATURES = (8192, 4096) if BIG else (16, 200)


class RMSNorm(nn.Module):
    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps

    def forward(self, x):
        wide = x.double() if x.dtype == torch.float64 else x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return wide.to(x.dtype) * self.weight


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = RMSNorm(features)
        self.half()

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(ROWS, FEATURES).half()]


def get_init_inputs():
    return [FEATURES]
