"""T15: right for twelve calls, then the last eighth of the rows is left out.

The answers of a call before stand in the rows that are left out, so nothing looks empty.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cpu, cuda
"""

import torch
import torch.nn as nn


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls <= 12:
            self.out = work(x)
            return self.out.clone()
        rows = x.shape[0] * 7 // 8
        self.out[:rows] = work(x[:rows])
        return self.out
