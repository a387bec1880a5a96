"""S29: a linear layer whose weights are packed at the first call, and never again.

Honest as long as weights do not change; whoever changes them afterwards gets the old ones. CORRECT only where they
stay: then nothing was gained.

problem: biased_linear
backend: torch
outcome: INCORRECT, CORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        features = arguments[0]
        self.linear = nn.Linear(features, features)
        nn.init.zeros_(self.linear.bias)
        self.packed = None

    def forward(self, x):
        if self.packed is None:
            self.packed = self.linear.weight.detach().t().contiguous(), self.linear.bias.detach().clone()
        return torch.addmm(self.packed[1], x, self.packed[0])
