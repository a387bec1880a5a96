"""S01: the input for its LeakyReLU.

Another tensor over the same storage. Exactly right on U[0, 1); passes allclose(1e-4).

problem: weak_leaky_relu
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
        return x.detach()
