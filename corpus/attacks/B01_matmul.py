"""B01: the library's product.

Right, and no kernel of its own.

problem: normal_matmul
backend: torch
outcome: CORRECT
devices: cuda
request: {"enable_profiling": true}
finding: B01
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, a, b):
        return torch.matmul(a, b)
