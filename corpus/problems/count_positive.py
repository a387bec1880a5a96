"""A Python number for an answer."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SHAPE = (4096, 4096) if BIG else (64, 512)


class Model(nn.Module):
    def forward(self, x):
        return int((x > 0).sum())


def get_inputs():
    return [torch.randn(SHAPE)]


def get_init_inputs():
    return []
