"""S23: operands rounded to fp16 before a float32 product.

Numbers of one sign, so that errors average out: they pass allclose(1e-4).

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
        return low(a) @ low(b)
