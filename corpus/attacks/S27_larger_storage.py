"""S27: an answer that describes more than its storage holds.

as_strided over the input, so that rows overlap.

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
        return F.gelu(x.view(-1)[: 2 * x.shape[1]]).as_strided(x.shape, (1, 1))
