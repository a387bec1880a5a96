"""S28: an answer without the state that should have changed.

The sum is right; the row is not written into the cache.

problem: cache_update
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, cache, x):
        return cache[1:].sum(dim=0) + x
