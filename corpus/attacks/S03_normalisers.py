"""S03: the expectation of the normaliser for each row's.

Passes allclose(1e-2): one read and one write, no reduction.

problem: weak_log_softmax
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import math

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return x - math.log(x.shape[1] * (math.e - 1))


# Above is S03_log_softmax_expected_normaliser. Variants, with what differs:
#
# S03_softmax_expected_normaliser: a softmax with the expected normaliser.
#   Passes allclose(1e-4); right to half a percent, each element, on the problem's own inputs.
#   problem: weak_softmax
#   -         return x - math.log(x.shape[1] * (math.e - 1))
#   +         return torch.exp(x) / (x.shape[1] * (math.e - 1))
