"""T18: a slow warm-up, and then work in one call of three only.

Few timed calls mean few checked ones: the sleep makes the number of iterations small, the skipping hopes to fall between.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cpu, cuda
"""

import time

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
        if self.calls <= 6:
            time.sleep(0.5)
        if self.calls <= 6 or self.calls % 3 == 0:
            self.out = work(x)
        return self.out
