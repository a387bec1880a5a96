"""T14: an output cache keyed on the shape of its input.

One correctness trial would find nothing wrong with it.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED
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
        if x.shape not in self.known:
            self.known[x.shape] = work(x)
        return self.known[x.shape]
