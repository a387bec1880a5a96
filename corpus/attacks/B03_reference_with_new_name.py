"""B03: the reference under another name.

A subclass with nothing in it.

problem: linear_relu_gemm
backend: torch
outcome: CORRECT
devices: cuda
request: {"enable_profiling": true}
finding: B01
"""

import torch
import torch.nn as nn


class Original(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return torch.relu(self.linear(x)) * 0.5


class ModelNew(Original):
    pass
