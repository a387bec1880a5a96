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


# Above is S02_triplet_margin_one. Variants, with what differs:
#
# S02_hinge_one: one for a hinge loss.
#   Targets are plus or minus one alike often. Passes allclose(1e-2) on most draws.
#   problem: weak_hinge
#   -     def forward(self, anchor, positive, negative):
#   -         return torch.ones((), device=anchor.device)
#   +     def forward(self, predictions, targets):
#   +         return torch.ones((), device=predictions.device)
#
# S02_triplet_margin_one_loose: the margin for a triplet loss, under a tolerance of 1e-2.
#   It passes that tolerance on the problem's own inputs; stress inputs have to tell.
#   request: {"tolerance": {"preset": "PRESET_LOOSE"}, "stress_inputs": true}
