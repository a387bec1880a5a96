"""Product of eight-bit operands that are widened to bfloat16, which holds them exactly.

problem: fp8_matmul_scaled
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, a, b, scale):
        return ((a.bfloat16() @ b.bfloat16()).float() * scale).bfloat16()
