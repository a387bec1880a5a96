"""HardShrink of inputs in steps of an eighth, so that some are exactly at the limit."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BIG = torch.cuda.is_available()
COUNT = 4096 * 4096 - 3 if BIG else 15_013


class Model(nn.Module):
    def forward(self, x):
        return F.hardshrink(x, 0.5)


def get_inputs():
    return [torch.randint(-16, 17, (COUNT,)) / 8.0]


def get_init_inputs():
    return []
