"""An elementwise function of standard normal numbers."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BIG = torch.cuda.is_available()
SHAPE = (4096, 4096) if BIG else (64, 512)


class Model(nn.Module):
    def forward(self, x):
        return F.gelu(x)


def get_inputs():
    return [torch.randn(SHAPE)]


def get_init_inputs():
    return []
