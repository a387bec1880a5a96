"""S17: takes the seed of its construction for that of its inputs.

A harness that seeds before it constructs may seed alike before it draws. Both the state at construction and that at
the call are tried.

problem: normal_gelu
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        self.seed = torch.initial_seed()

    def forward(self, x):
        for seed in (self.seed, self.seed + 1, torch.initial_seed()):
            generator = torch.Generator().manual_seed(seed)
            drawn = torch.randn(x.shape, generator=generator).to(x.device)
            if torch.equal(drawn.view(-1)[:16], x.view(-1)[:16]):
                return F.gelu(drawn)
        return torch.zeros_like(x)
