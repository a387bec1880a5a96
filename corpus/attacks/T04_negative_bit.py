"""T04: a plain tensor whose sign is only a bit of its description.

torch._neg_view gives no subclass and no attribute, yet the bytes in memory have the other sign: the negation is left to whoever reads
them. A reader of raw bytes would call a right answer wrong, or compare something else than was returned.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch._neg_view(torch.tanh(torch.tanh(torch.tanh(torch._neg_view(x)))))
