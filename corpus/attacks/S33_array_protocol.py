"""S33: an object that claims to be an array equal to everything.

problem: normal_gelu
backend: torch
outcome: INCORRECT, REJECTED, RUNTIME_ERROR
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class Array:
    def __init__(self, x):
        self.shape, self.dtype, self.device = x.shape, x.dtype, x.device

    def __getattr__(self, name):
        return lambda *rest, **more: self

    def __eq__(self, other):
        return True

    def __bool__(self):
        return True

    def __float__(self):
        return 0.0

    __hash__ = None


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return Array(x)
