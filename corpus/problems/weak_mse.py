"""Weak problem: a mean over so many uniform numbers that it is their expectation."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SHAPE = (1024, 32768) if BIG else (32, 32768)


class Model(nn.Module):
    def forward(self, predictions, targets):
        return torch.mean((predictions - targets) ** 2)


def get_inputs():
    scale = torch.rand(())
    return [torch.rand(SHAPE) * scale, torch.rand(SHAPE)]


def get_init_inputs():
    return []
