"""S11: makes its input empty, and returns an empty answer.

A comparison over no elements finds no difference.

problem: normal_gelu
backend: torch
outcome: INCORRECT, REJECTED, RUNTIME_ERROR
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        x.set_()
        return torch.empty(0, device=x.device)
