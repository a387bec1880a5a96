"""S12: zeroes every parameter in the process, at the time of import already.

problem: biased_linear
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import gc

import torch
import torch.nn as nn


def spoil():
    for thing in gc.get_objects():
        if isinstance(thing, nn.Parameter):
            thing.data.zero_()


spoil()


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        spoil()
        return torch.zeros_like(x)
