"""T15: right for the first second, then nothing.

A timer instead of a counter: checks are made early, timing goes on.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cpu, cuda
"""

import time

import torch
import torch.nn as nn

begin = time.monotonic()


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = None

    def forward(self, x):
        if self.out is None or time.monotonic() - begin < 1:
            self.out = work(x)
        return self.out
