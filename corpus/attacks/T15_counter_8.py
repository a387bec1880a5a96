"""T15: right for the first 8 calls, then nothing.

Afterwards it returns the buffer of its last real answer.

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
        if self.calls <= 8:
            self.out = work(x)
        return self.out
