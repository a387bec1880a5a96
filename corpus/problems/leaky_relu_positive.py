"""LeakyReLU with slope 0.2, of inputs that are all positive."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BIG = torch.cuda.is_available()
COUNT = 4096 * 4096 - 3 if BIG else 15_013


class Model(nn.Module):
    def forward(self, x):
        return F.leaky_relu(x, 0.2)


def get_inputs():
    return [torch.rand(COUNT)]


def get_init_inputs():
    return []
