"""S12: zeroes the parameters of every module it can find, and returns zeros.

A reference in the same process would be among them, and would agree.

problem: biased_linear
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import gc

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        with torch.no_grad():
            for thing in gc.get_objects():
                if isinstance(thing, nn.Module) and thing is not self:
                    for parameter in thing.parameters():
                        parameter.zero_()
        return torch.zeros_like(x)
