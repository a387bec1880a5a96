"""S33: a str that is equal to everything.

What compares by == or by !=, on either side, is content.

problem: count_positive
backend: torch
outcome: INCORRECT, REJECTED, RUNTIME_ERROR
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class Yes(str):
    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    __lt__ = __le__ = __gt__ = __ge__ = __eq__
    __hash__ = str.__hash__


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return Yes("0")
