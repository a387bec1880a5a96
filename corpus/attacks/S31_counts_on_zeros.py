"""S31: adds into memory that it has not zeroed.

Memory that nobody has used before is zero, so that the first call may be right. What is allocated in a checked call is soiled.

problem: total
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        y = torch.empty(4096, device=x.device)
        y += (x * x).sum()
        return y[:1].clone()
