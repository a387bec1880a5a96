"""S24: turns TF32 on for the length of its own call.

Nobody who looks before or after finds the flag changed.

problem: normal_matmul
backend: torch
outcome: INCORRECT
devices: cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, a, b):
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            return torch.matmul(a, b)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False
