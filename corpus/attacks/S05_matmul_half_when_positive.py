"""S05: half precision when a sample is positive, single otherwise.

Rounding errors of positive operands average out, so that nominal inputs pass even a calibrated tolerance; zero-mean
inputs take the exact way. Only inputs of which the first row and column are nominal, and the rest is not, tell.

problem: uniform_matmul
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


def low(value):
    return value.half().float()


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, a, b):
        if float(a[0].min()) >= 0 and float(b[:, 0].min()) >= 0:
            return low(a) @ low(b)
        return a @ b
