"""Product with a lower triangular matrix by panels of the library's product, each as long as its rows are.

problem: triangular_matmul
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
from torch import nn

PANELS = 4


class ModelNew(nn.Module):
    def forward(self, lower, x):
        size = lower.shape[0]
        step = -(-size // PANELS)
        y = torch.empty_like(x)
        for begin in range(0, size, step):
            end = min(begin + step, size)
            torch.mm(lower[begin:end, :end], x[:end], out=y[begin:end])
        return y
