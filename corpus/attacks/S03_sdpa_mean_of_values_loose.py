"""S03: the mean of the values for attention, under a tolerance of 1e-2.

It passes that tolerance on the problem's own inputs; stress inputs have to tell.

problem: weak_sdpa
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

    def forward(self, q, k, v):
        return v.mean(dim=-2, keepdim=True).expand(q.shape).contiguous()
