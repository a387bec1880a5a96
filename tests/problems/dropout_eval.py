"""Dropout in a model that is not training: the identity before a GELU."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BIG = torch.cuda.is_available()
SHAPE = (4096, 4096) if BIG else (64, 512)


class Model(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.dropout = nn.Dropout(p).eval()

    def forward(self, x):
        return F.gelu(self.dropout(x))


def get_inputs():
    return [torch.randn(SHAPE)]


def get_init_inputs():
    return [0.5]
