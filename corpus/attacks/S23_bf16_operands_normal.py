"""S23: operands rounded to bf16 before a float32 product.

Zero-mean numbers, where the loss shows.

problem: normal_matmul
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
