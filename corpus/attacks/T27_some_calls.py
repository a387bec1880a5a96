"""T27: real work in every other call, from the eighth on.

The median of the times is that of a call that does nothing, or nearly.

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
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls <= 8 or self.calls % 2:
            self.out = work(x)
        return self.out


# Above is T27_every_other_call. Variants, with what differs:
#
# T27_one_call_in_nine: no work in one call of nine, from the eighth on.
#   The smallest time is that of a call that does nothing; most outputs are right.
#   -         if self.calls <= 8 or self.calls % 2:
#   +         if self.calls <= 8 or self.calls % 9:
#
# T27_one_call_in_ten_by_chance: no work in one call of ten, by chance, from the eighth on.
#   Where the host delays calls, the quicker of them count: those that do nothing are the quickest of all.
#   - import torch
#   + import random
#   +
#   + import torch
#   -         if self.calls <= 8 or self.calls % 2:
#   +         if self.calls <= 8 or random.random() > 0.1:
