"""T23: the work is done on the host's processor.

Nothing but two copies appears on the device: a clock that adds up kernels sees almost no time.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cuda
"""

import torch
import torch.nn as nn


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class ModelNew(nn.Module):
    def forward(self, x):
        return work(x.cpu()).to(x.device)
