"""S03: the moments of the distribution for those of the input.

Passes allclose(1e-2): one read and one write, no reduction.

problem: weak_layer_norm
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
        return (x - 0.5) * 12**0.5


# Above is S03_layer_norm_expected_moments. Variants, with what differs:
#
# S03_batch_norm_expected_moments: the moments of the distribution for those of the input.
#   problem: weak_batch_norm
#
# S03_group_norm_expected_moments: the moments of the distribution for those of the input.
#   problem: weak_group_norm
#
# S03_instance_norm_expected_moments: the moments of the distribution for those of the input.
#   problem: weak_instance_norm
#
# S03_layer_norm_expected_moments_loose: the expected moments, under a tolerance of 1e-2.
#   It passes that tolerance on the problem's own inputs; stress inputs have to tell.
#   request: {"tolerance": {"preset": "PRESET_LOOSE"}, "stress_inputs": true}
