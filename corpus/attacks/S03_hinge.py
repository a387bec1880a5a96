"""S03: a hinge loss of which no prediction is read.

Passes allclose(1e-2); allclose(1e-4) at the size a GPU gets, on most draws.

problem: weak_hinge
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, predictions, targets):
        return 1 - 0.5 * targets.mean()


# Above is S03_hinge_targets_only. Variants, with what differs:
#
# S03_hinge_targets_only_loose: a hinge loss without predictions, under a tolerance of 1e-2.
#   It passes that tolerance on the problem's own inputs; stress inputs have to tell.
#   request: {"tolerance": {"preset": "PRESET_LOOSE"}, "stress_inputs": true}
