"""S04: a softmax that does not subtract the maximum.

One pass less over the data; overflows as soon as an input is above 88. Exactly right on U[0, 1); passes
allclose(1e-4).

problem: weak_softmax
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        e = torch.exp(x)
        return e / e.sum(dim=1, keepdim=True)


# Above is S04_softmax_without_maximum. Variants, with what differs:
#
# S04_log_softmax_without_maximum: a log-softmax that does not subtract the maximum.
#   problem: weak_log_softmax
#   -         e = torch.exp(x)
#   -         return e / e.sum(dim=1, keepdim=True)
#   +         return x - torch.log(torch.exp(x).sum(dim=1, keepdim=True))
