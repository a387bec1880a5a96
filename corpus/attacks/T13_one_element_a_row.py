"""T13: an output cache keyed on one element of each row.

The diagonal, by a sum and a sum of squares: every row counts, most columns do not.

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


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.known = {}

    def forward(self, x):
        key = (float(x.diagonal().double().sum()), float(x.diagonal().double().square().sum()))
        y = self.known.get(key)
        if y is None:
            if len(self.known) == KEPT:
                del self.known[next(iter(self.known))]
            self.known[key] = y = work(x)
        return y
