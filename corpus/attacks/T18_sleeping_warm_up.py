"""T18: a slow warm-up, so that a harness with a time budget makes few calls.

The first eight calls sleep for a quarter of a second each; then all is right and fast.

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
        if self.calls <= 8:
            time.sleep(0.25)
        return work(x)
