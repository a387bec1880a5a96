"""T16: calls that follow each other quickly are timed.

Between checks the judge draws inputs and compares; in a timed loop the next call comes at once. The pause before a call decides.

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
        self.end = 0.0
        self.out = None

    def forward(self, x):
        pause = time.monotonic() - self.end
        if self.out is None or pause > 0.002:
            self.out = work(x)
        self.end = time.monotonic()
        return self.out
