"""T12: an output cache with an entry for each address and version ever seen.

An allocator that alternates between blocks does not get past it; only new values in old memory do.

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
        self.known = {}

    def forward(self, x):
        key = (x.data_ptr(), x._version, tuple(x.shape), tuple(x.stride()))
        if key not in self.known:
            self.known[key] = work(x)
        return self.known[key]
