"""T13: an output cache keyed on a sum over the whole input.

It reads everything once, which is cheaper than the work, and does not care about the order of elements: it hits whenever values are
used again, also permuted.

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
        key = (float(x.sum(dtype=torch.float64)), float(x.abs().amax()))
        y = self.known.get(key)
        if y is None:
            if len(self.known) == KEPT:
                del self.known[next(iter(self.known))]
            self.known[key] = y = work(x)
        return y
