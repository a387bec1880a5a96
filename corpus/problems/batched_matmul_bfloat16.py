"""Products of batches of bfloat16 matrices, the second of which is stored transposed."""

import torch
from torch import nn

BIG = torch.cuda.is_available()
BATCH, ROWS, INNER, COLUMNS = (64, 512, 512, 512) if BIG else (3, 32, 64, 32)


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    a = torch.randn(BATCH, ROWS, INNER).to(torch.bfloat16)
    b = torch.randn(BATCH, COLUMNS, INNER).to(torch.bfloat16)
    return [a, b.transpose(1, 2)]


def get_init_inputs():
    return []
