"""Two linear layers with a SiLU between them and the input added again, float32."""

import torch
import torch.nn.functional as F
from torch import nn

BIG = torch.cuda.is_available()
ROWS, WIDTH, HIDDEN = (512, 1024, 2048) if BIG else (16, 64, 96)


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        return x + self.down(F.silu(self.up(x)))


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH, HIDDEN]
