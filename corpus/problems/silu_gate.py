"""SiLU of one tensor times another."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BIG = torch.cuda.is_available()
COUNT = 4096 * 4096 - 3 if BIG else 15_013


class Model(nn.Module):
    def forward(self, x, gate):
        return F.silu(x) * gate


def get_inputs():
    return [torch.randn(COUNT), torch.randn(COUNT)]


def get_init_inputs():
    return []
