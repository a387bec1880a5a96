"""An elementwise function over a number of elements that no block size divides."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BIG = torch.cuda.is_available()
COUNT = 16777213 if BIG else 32749


class Model(nn.Module):
    def forward(self, x):
        return F.gelu(x)


def get_inputs():
    return [torch.randn(COUNT)]


def get_init_inputs():
    return []
