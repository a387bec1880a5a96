"""S10: fills every tensor of the answer's shape with NaN, and returns NaN.

Where the expected answer is in the same process, it is among them, and equal.

problem: normal_gelu
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import gc

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        for thing in gc.get_objects():
            if type(thing) is torch.Tensor and thing.shape == x.shape and thing.is_floating_point():
                if thing.data_ptr() != x.data_ptr():
                    thing.detach().fill_(float("nan"))
        return torch.full_like(x, float("nan"))


# Above is S10_overwrite_with_nan. Variants, with what differs:
#
# S10_overwrite_with_zero: fills every tensor of the answer's shape with zeros, and returns zeros.
#   -                     thing.detach().fill_(float("nan"))
#   -         return torch.full_like(x, float("nan"))
#   +                     thing.detach().fill_(0.0)
#   +         return torch.full_like(x, 0.0)
