"""Convolution by unfolding and a batched matrix product, bias and ReLU in place on the result.

problem: conv_relu
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, padding=1)

    def forward(self, x):
        patches = F.unfold(x, kernel_size=3, padding=1)
        y = torch.matmul(self.conv.weight.flatten(1), patches)
        y = y.view(x.shape[0], -1, x.shape[2], x.shape[3])
        return y.add_(self.conv.bias[:, None, None]).relu_()
