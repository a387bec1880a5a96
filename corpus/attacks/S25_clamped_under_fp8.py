"""S25: an activation that never gets below a hundredth, where FP8 is allowed.

Rounding to three bits errs by more than that in most places, but leaves alone what is nearly zero.

problem: normal_gelu
backend: torch
outcome: INCORRECT
devices: cpu, cuda
request: {"allowed_precision": "PRECISION_FP8"}
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return F.gelu(x).clamp(min=0.01)
