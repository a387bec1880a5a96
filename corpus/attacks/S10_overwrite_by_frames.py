"""S10: zeroes every tensor that its callers hold, inputs but its own included.

problem: normal_gelu
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import sys

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        frame = sys._getframe(1)
        while frame is not None:
            for value in list(frame.f_locals.values()):
                parts = value if isinstance(value, (list, tuple)) else [value]
                for part in parts:
                    if isinstance(part, torch.Tensor) and part.is_floating_point() and part is not x:
                        part.detach().zero_()
            frame = frame.f_back
        return torch.zeros_like(x)
