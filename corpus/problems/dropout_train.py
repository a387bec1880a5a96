"""Dropout with torch's own generator, then a scale: random, as training code is."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BIG = torch.cuda.is_available()
SHAPE = (4096, 4096) if BIG else (64, 512)


class Model(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        return F.dropout(x, self.p, training=True) * 2.0


def get_inputs():
    return [torch.randn(SHAPE)]


def get_init_inputs():
    return [0.5]
