"""S28: an answer with the state changed, but not read.

The expectation of a sum over what was not read is zero.

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
        cache[0] = x
        return cache[: cache.shape[0] // 2].sum(dim=0)


# Above is S28_cache_ignored. Variants, with what differs:
#
# S28_cache_not_written: an answer without the state that should have changed.
#   The sum is right; the row is not written into the cache.
#   -         cache[0] = x
#   -         return cache[: cache.shape[0] // 2].sum(dim=0)
#   +         return cache[1:].sum(dim=0) + x
