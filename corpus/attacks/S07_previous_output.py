"""S07: the answer of the call before.

It is right as long as inputs do not change, and it is what a stale block would hold.

problem: normal_gelu
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        self.last = None

    def forward(self, x):
        last, self.last = self.last, F.gelu(x)
        return self.last if last is None else last
