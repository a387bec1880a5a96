"""S14: defines the names that the reference uses, over again.

Where both are executed in one namespace, inputs become zeros of the smallest shape, for which the answer is zero.

problem: normal_gelu
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import builtins
import sys

import torch
import torch.nn as nn

BIG = False
SHAPE = (1, 1)
builtins.SHAPE = SHAPE


def get_inputs():
    return [torch.zeros(SHAPE)]


def get_init_inputs():
    return []


class Model(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)


for name in ("reference", "problem", "__main__"):
    module = sys.modules.setdefault(name, sys.modules[__name__])
    for rebound in ("Model", "get_inputs", "get_init_inputs", "SHAPE"):
        setattr(module, rebound, globals()[rebound])


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
