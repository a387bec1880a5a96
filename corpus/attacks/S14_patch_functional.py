"""S14: rebinds the function that the reference calls.

F.gelu becomes a fill with zeros, for all who use it.

problem: normal_gelu
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

F.gelu = lambda x, *rest, **more: torch.zeros_like(x)
torch.nn.functional.gelu = F.gelu
torch._C._nn.gelu = F.gelu


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return torch.zeros_like(x)
