"""S25: every element a thousandth too large, where bfloat16 is allowed.

The error is far smaller than that of the arithmetic which the request allows, and all of it goes one way.

problem: normal_gelu
backend: torch
outcome: INCORRECT
devices: cpu, cuda
request: {"allowed_precision": "PRECISION_BF16"}
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return F.gelu(x) * 1.001
