"""S11: zeroes its input, and returns zeros.

The reference agrees if it gets the same tensor afterwards.

problem: normal_gelu
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        x.zero_()
        return torch.zeros_like(x)
