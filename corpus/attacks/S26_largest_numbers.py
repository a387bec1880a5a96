"""S26: numbers so large that their squares overflow.

A norm of the error would be infinite, and its quotient NaN.

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
        return torch.full_like(x, 3e38)
