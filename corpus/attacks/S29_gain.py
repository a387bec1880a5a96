"""S29: a layer without gain and shift.

Right with parameters as they begin, wrong once they are others.

problem: gain_and_shift
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(arguments[0]))
        self.shift = nn.Parameter(torch.zeros(arguments[0]))

    def forward(self, x):
        return torch.tanh(x)


# Above is S29_gain_and_shift_dropped. Variants, with what differs:
#
# S29_gain_dropped: a layer without its own gain.
#   -         return torch.tanh(x)
#   +         return torch.tanh(x) + self.shift
