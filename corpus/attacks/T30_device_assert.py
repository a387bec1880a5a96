"""T30: a failed assertion on the device leaves a context in which nothing works.

An index out of range in a kernel of torch's own, after the answer has been computed: every later call of the harness reports an error that it did not make.

problem: chained_tanh
backend: torch
outcome: RUNTIME_ERROR, INCORRECT, REJECTED
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
        y = work(x)
        self.calls += 1
        if self.calls == 5:
            table = torch.zeros(4, device=x.device)
            table[torch.full((1,), 1 << 20, device=x.device)].sum()
        return y
