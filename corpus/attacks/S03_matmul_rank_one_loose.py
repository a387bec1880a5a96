"""S03: row sums times column sums, under a tolerance of 1e-2.

It passes that tolerance on the problem's own inputs; stress inputs have to tell.

problem: weak_matmul_large_k
backend: torch
outcome: INCORRECT
devices: cpu, cuda
request: {"tolerance": {"preset": "PRESET_LOOSE"}, "stress_inputs": true}
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, a, b):
        return a.sum(dim=1, keepdim=True) * b.sum(dim=0, keepdim=True) / a.shape[1]
