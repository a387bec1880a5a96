"""S24: sets torch's precision of float32 products to medium.

bfloat16 inside, where the hardware has it.

problem: normal_matmul
backend: torch
outcome: INCORRECT
devices: cuda
"""

import torch
import torch.nn as nn

torch.set_float32_matmul_precision("medium")


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, a, b):
        return torch.matmul(a, b)
