"""S23: operands rounded to bf16 before a float32 product.

Numbers of one sign: errors average out, so that allclose(1e-2) sees nothing, and allclose(1e-4) little or nothing at
large sizes.

problem: uniform_matmul
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


def low(value):
    return value.bfloat16().float()


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, a, b):
        return low(a) @ low(b)
