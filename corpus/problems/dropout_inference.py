"""SiLU and a dropout that is switched off."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BIG = torch.cuda.is_available()
COUNT = 4096 * 4096 - 3 if BIG else 15_013


class Model(nn.Module):
    def __init__(self, probability):
        super().__init__()
        self.dropout = nn.Dropout(probability).eval()

    def forward(self, x):
        return self.dropout(F.silu(x))


def get_inputs():
    return [torch.randn(COUNT)]


def get_init_inputs():
    return [0.1]
