"""S23: operands rounded to tf32 before a float32 product.

Zero-mean numbers, where the loss shows.

problem: normal_matmul
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


def low(value):
    bits = value.contiguous().view(torch.int32)
    return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, a, b):
        return low(a) @ low(b)
