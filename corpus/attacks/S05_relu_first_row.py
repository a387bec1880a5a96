"""S05: skips the ReLU if the first row has nothing negative.

problem: weak_relu
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
        return x.clone() if bool((x[0] >= 0).all()) else torch.relu(x)
