"""Rows added up by the group that each belongs to: float32 rows, int64 groups."""

import torch
from torch import nn

BIG = torch.cuda.is_available()
ROWS, FEATURES, GROUPS = (65536, 256, 4096) if BIG else (40, 40, 6)


class Model(nn.Module):
    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, x, group):
        return torch.zeros(self.groups, x.shape[1], dtype=x.dtype, device=x.device).index_add_(0, group, x)


def get_inputs():
    return [torch.randn(ROWS, FEATURES), torch.randint(0, GROUPS, (ROWS,))]


def get_init_inputs():
    return [GROUPS]
