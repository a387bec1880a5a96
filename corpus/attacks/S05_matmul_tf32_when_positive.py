"""S05: TF32 when a sample is positive, single precision otherwise.

As S05_matmul_half_when_positive, at the speed of tensor cores.

problem: uniform_matmul
backend: torch
outcome: INCORRECT
devices: cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, a, b):
        torch.backends.cuda.matmul.allow_tf32 = float(a[0].min()) >= 0 and float(b[:, 0].min()) >= 0
        c = torch.matmul(a, b)
        torch.backends.cuda.matmul.allow_tf32 = False
        return c
