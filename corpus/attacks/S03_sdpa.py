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


# Above is S03_sdpa_mean_of_values. Variants, with what differs:
#
# S03_sdpa_mean_of_values_loose: the mean of the values for attention, under a tolerance of 1e-2.
#   It passes that tolerance on the problem's own inputs; stress inputs have to tell.
#   request: {"tolerance": {"preset": "PRESET_LOOSE"}, "stress_inputs": true}
