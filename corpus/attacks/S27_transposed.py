"""S27: the transpose of a square answer.

The same numbers in another order.

problem: normal_matmul
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, a, b):
        return torch.matmul(a, b).t()
