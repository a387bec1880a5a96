"""Softmax as torch.compile makes it.

problem: rows_softmax
backend: torch
outcome: CORRECT
devices: cuda
"""

import torch
from torch import nn


@torch.compile
def softmax(x):
    e = torch.exp(x - x.amax(dim=1, keepdim=True))
    return e / e.sum(dim=1, keepdim=True)


class ModelNew(nn.Module):
    def forward(self, x):
        return softmax(x)
