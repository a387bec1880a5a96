"""T13: an output cache keyed on a window of 4096 elements.

A checksum of the window and of its weighted sum; anything outside of it may change unseen.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cpu, cuda
"""

import torch
import torch.nn as nn

#: Answers that are kept: more would use up the memory that a candidate may have.
KEPT = 16


def ramp(x):
    return torch.arange(4096, device=x.device, dtype=torch.float64)


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.known = {}

    def forward(self, x):
        key = (float(x.view(-1)[:4096].double().sum()), float((x.view(-1)[:4096].double() * ramp(x)).sum()))
        y = self.known.get(key)
        if y is None:
            if len(self.known) == KEPT:
                del self.known[next(iter(self.known))]
            self.known[key] = y = work(x)
        return y
