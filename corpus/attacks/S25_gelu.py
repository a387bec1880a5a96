"""S25: every element a thousandth too large.

The error is one-sided and spread evenly: no element stands out.

problem: normal_gelu
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return F.gelu(x) * 1.001


# Above is S25_biased_a_little. Variants, with what differs:
#
# S25_bias_under_bf16: every element a thousandth too large, where bfloat16 is allowed.
#   The error is far smaller than that of the arithmetic which the request allows, and all of it goes one way.
#   request: {"allowed_precision": "PRECISION_BF16"}
#
# S25_clamped_under_fp8: an activation that never gets below a hundredth, where FP8 is allowed.
#   Rounding to three bits errs by more than that in most places, but leaves alone what is nearly zero.
#   request: {"allowed_precision": "PRECISION_FP8"}
#   -         return F.gelu(x) * 1.001
#   +         return F.gelu(x).clamp(min=0.01)
#
# S25_last_rows: the last rows left out.
#   Two in a hundred rows are not computed.
#   -         return F.gelu(x) * 1.001
#   +         rows = x.shape[0] - max(1, x.shape[0] // 50)
#   +         y = torch.zeros_like(x)
#   +         y[:rows] = F.gelu(x[:rows])
#   +         return y
#
# S25_one_element: one wrong element.
#   The last of all, off by a third.
#   -         return F.gelu(x) * 1.001
#   +         y = F.gelu(x)
#   +         y.view(-1)[-1] = y.view(-1)[-1] * 0.67 + 0.1
#   +         return y
#
# S25_one_percent: one element of a hundred left at zero.
#   Within every rule that asks for a share of right elements only.
#   -         return F.gelu(x) * 1.001
#   +         y = F.gelu(x)
#   +         y.view(-1)[::100] = 0
#   +         return y
#
# S25_right_on_average: every second element too large by what the other is too small.
#   The sum of the errors is zero, and so is their mean.
#   -         return F.gelu(x) * 1.001
#   +         y = F.gelu(x)
#   +         y[:, ::2] += 0.01
#   +         y[:, 1::2] -= 0.01
#   +         return y
#
# S25_small_ones_dropped: elements near zero left at zero.
#   Each is below an absolute tolerance of 1e-2, and together they are one element in forty.
#   -         return F.gelu(x) * 1.001
#   +         y = F.gelu(x)
#   +         return torch.where(y.abs() < 0.009, 0.0, y)
