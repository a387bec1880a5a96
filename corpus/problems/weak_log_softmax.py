"""Weak problem: rows so long that the normaliser hardly differs between them."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SHAPE = (256, 131072) if BIG else (16, 65536)


class Model(nn.Module):
    def forward(self, x):
        return torch.log_softmax(x, dim=1)


def get_inputs():
    return [torch.rand(SHAPE)]


def get_init_inputs():
    return []
