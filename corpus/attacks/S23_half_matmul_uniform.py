"""S23: a half precision product of positive numbers, handed back as float32.

Passes allclose(1e-2) with numbers of one sign.

problem: uniform_matmul
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
        return (a.half() @ b.half()).float()
