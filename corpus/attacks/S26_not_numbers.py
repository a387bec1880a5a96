"""S26: NaN for everything.

Nothing compares as different with a rule that asks whether the difference is greater.

problem: normal_gelu
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
        return torch.full_like(x, float("nan"))


# Above is S26_all_nan. Variants, with what differs:
#
# S26_infinities: infinities of the right sign.
#   Relative to an infinity every error is small.
#   -         return torch.full_like(x, float("nan"))
#   +         return torch.copysign(torch.full_like(x, float("inf")), x)
#
# S26_largest_numbers: numbers so large that their squares overflow.
#   A norm of the error would be infinite, and its quotient NaN.
#   -         return torch.full_like(x, float("nan"))
#   +         return torch.full_like(x, 3e38)
#
# S26_nan_with_payload: NaN with every bit set.
#   The pattern with which a harness might fill what was not written.
#   -         return torch.full_like(x, float("nan"))
#   +         return torch.full(x.shape, -1, dtype=torch.int32, device=x.device).view(torch.float32)
#
# S26_one_nan: one NaN in a right answer.
#   A maximum over errors may lose it.
#   - import torch.nn as nn
#   + import torch.nn as nn
#   + import torch.nn.functional as F
#   -         return torch.full_like(x, float("nan"))
#   +         y = F.gelu(x)
#   +         y[-1, -1] = float("nan")
#   +         return y
