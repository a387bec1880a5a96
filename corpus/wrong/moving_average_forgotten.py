"""A moving average in a buffer: the answer is right, and the buffer keeps its old average.

problem: moving_average
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.register_buffer("average", torch.zeros(columns))

    def forward(self, x):
        return x - torch.lerp(self.average, x.mean(0), 0.1)
