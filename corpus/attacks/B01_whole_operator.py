"""B01: the library's operator for a whole problem.

Right, and no kernel of its own.

problem: normal_gelu
backend: torch
outcome: CORRECT
devices: cuda
request: {"enable_profiling": true}
finding: B01
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return F.gelu(x)
