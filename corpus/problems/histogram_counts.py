"""How often each of 64 values is there."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
COUNT = 4096 * 1024 - 3 if BIG else 15_013


class Model(nn.Module):
    def forward(self, x):
        return torch.bincount(x, minlength=64)


def get_inputs():
    return [torch.randint(0, 64, (COUNT,))]


def get_init_inputs():
    return []
