"""S11: changes its input behind its version counter.

Neither the version nor autograd notices what is done through .data.

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

    def forward(self, x):
        y = F.gelu(x)
        x.data.view(-1)[:1].neg_()
        return y
