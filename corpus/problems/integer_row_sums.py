"""The sums of rows of large 32-bit integers, as 64-bit integers."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
ROWS, COLUMNS = (16384, 1000) if BIG else (12, 200)


class Model(nn.Module):
    def forward(self, x):
        return torch.sum(x, dim=1)


def get_inputs():
    return [torch.randint(0, 2**31 - 1, (ROWS, COLUMNS), dtype=torch.int32)]


def get_init_inputs():
    return []
