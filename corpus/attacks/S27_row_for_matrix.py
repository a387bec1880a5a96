"""S27: one row for a matrix of equal rows.

It broadcasts, and would be right if it had the shape.

problem: row_shifts
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, row):
        return torch.tanh(row)
