"""Three elementwise passes over a large tensor: long enough to be worth hiding, and sensitive to every single element."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
ROWS, COLUMNS = (4096, 4096) if BIG else (384, 1024)


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(torch.tanh(torch.tanh(x)))


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
