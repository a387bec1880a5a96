"""S23: operands rounded to fp8 before a float32 product.

Numbers of one sign, so that errors average out: they pass allclose(1e-2) on most draws.

problem: uniform_matmul
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


def low(value):
    scale = value.abs().amax() / 448
    return (value / scale).to(torch.float8_e4m3fn).float() * scale


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, a, b):
        return low(a) @ low(b)
