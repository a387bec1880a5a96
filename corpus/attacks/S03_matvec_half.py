"""S03: a product from the first half of the inner dimension.

Half of the reading; passes allclose(1e-2).

problem: weak_matvec
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
        half = a.shape[1] // 2
        return (a[:, :half] @ b[:half]) * 2
