"""Matrix product by PyTorch, panel by panel, each added into its place of the output.

problem: float32_matmul
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        inner = a.shape[1]
        half = inner // 2
        c = torch.mm(a[:, :half], b[:half])
        return c.addmm_(a[:, half:], b[half:])
