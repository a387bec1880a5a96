"""S03: the mean of the values for attention.

Passes allclose(1e-2): no score, no softmax; queries and keys are not read.

problem: weak_sdpa
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, q, k, v):
        return v.mean(dim=-2, keepdim=True).expand(q.shape).contiguous()
