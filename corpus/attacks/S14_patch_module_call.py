"""S14: rebinds what calling a module means.

Every module but its own returns zeros.

problem: biased_linear
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn

nn.Module.__call__ = lambda self, x, *rest: torch.zeros_like(x)
nn.Linear.forward = lambda self, x: torch.zeros_like(x)


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return torch.zeros_like(x)
