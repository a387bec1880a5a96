"""The gate of a SwiGLU layer: both halves in one tensor, bfloat16."""

import torch
import torch.nn.functional as F
from torch import nn

BIG = torch.cuda.is_available()
ROWS, WIDTH = (8192, 4096) if BIG else (16, 96)


class Model(nn.Module):
    def forward(self, x):
        gate, value = x.chunk(2, dim=-1)
        return F.silu(gate) * value


def get_inputs():
    return [torch.randn(ROWS, 2 * WIDTH).to(torch.bfloat16)]


def get_init_inputs():
    return []
