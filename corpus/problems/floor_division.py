"""Integer division, rounded down."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
COUNT = 4096 * 4096 - 3 if BIG else 15_013


class Model(nn.Module):
    def forward(self, x, y):
        return torch.div(x, y, rounding_mode="floor")


def get_inputs():
    return [torch.randint(-1000, 1000, (COUNT,), dtype=torch.int32), torch.randint(1, 50, (COUNT,), dtype=torch.int32)]


def get_init_inputs():
    return []
