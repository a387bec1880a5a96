"""T16: different behaviour when gradients are enabled.

Some harnesses check under no_grad and time outside of it: with gradients on, the old buffer is returned.

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
        self.out = None

    def forward(self, x):
        if self.out is None or not torch.is_grad_enabled():
            self.out = work(x)
        return self.out
