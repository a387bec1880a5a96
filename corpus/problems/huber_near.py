"""The elements of a Huber loss, of pairs that are near each other."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BIG = torch.cuda.is_available()
COUNT = 4096 * 4096 - 3 if BIG else 15_013


class Model(nn.Module):
    def forward(self, x, y):
        return F.huber_loss(x, y, reduction="none", delta=1.0)


def get_inputs():
    return [torch.randn(COUNT) * 0.1, torch.randn(COUNT) * 0.1]


def get_init_inputs():
    return []
