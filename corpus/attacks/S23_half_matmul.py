"""S23: a half precision product, handed back as float32.

Operands, sums and result are half precision's.

problem: normal_matmul
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
