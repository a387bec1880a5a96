"""S02: zeros for a softmax over long rows.

No probability is above 1e-4; passes allclose(1e-4).

problem: weak_softmax
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
        return torch.zeros_like(x)


# Above is S02_softmax_zeros. Variants, with what differs:
#
# S02_frobenius_zeros: zeros for a matrix divided by its norm.
#   No quotient is above 2e-3; passes allclose(1e-2).
#   problem: weak_frobenius_norm
#
# S02_l2_norm_zeros: zeros for rows divided by their norm.
#   No quotient is above 7e-3; passes allclose(1e-2).
#   problem: weak_l2_norm
#
# S02_max_one: one for the largest of many.
#   Passes allclose(1e-2): the largest of 4096 numbers is 1 - 1/4097 on average.
#   problem: weak_max
#   -         return torch.zeros_like(x)
#   +         return torch.ones(x.shape[0], x.shape[2], device=x.device)
#
# S02_max_one_loose: one for the largest of many, under a tolerance of 1e-2.
#   It passes that tolerance on the problem's own inputs; stress inputs have to tell.
#   problem: weak_max
#   request: {"tolerance": {"preset": "PRESET_LOOSE"}, "stress_inputs": true}
#   -         return torch.zeros_like(x)
#   +         return torch.ones(x.shape[0], x.shape[2], device=x.device)
#
# S02_mean_constant: one half for every mean.
#   Passes allclose(1e-2): nothing is read.
#   problem: weak_mean
#   -         return torch.zeros_like(x)
#   +         return torch.full((x.shape[0], x.shape[2]), 0.5, device=x.device)
#
# S02_min_zero: zero for the smallest of many.
#   Passes allclose(1e-2): the smallest of 4096 numbers is 1/4097 on average.
#   problem: weak_min
#   -         return torch.zeros_like(x)
#   +         return torch.zeros(x.shape[0], x.shape[2], device=x.device)
#
# S02_softmax_tiny: 1e-30 for a softmax over long rows.
#   Neither zero nor in any way like a probability; passes allclose(1e-4).
#   -         return torch.zeros_like(x)
#   +         return torch.full_like(x, 1e-30)
#
# S02_softmax_uniform: the reciprocal of the row's length for a softmax.
#   Not zero, so that a check for zeros finds nothing, and rows sum to one; passes allclose(1e-4).
#   -         return torch.zeros_like(x)
#   +         return torch.full_like(x, 1.0 / x.shape[1])
#
# S02_softmax_zeros_allclose: zeros for a softmax, under an absolute tolerance of 1e-4.
#   It passes that tolerance on the problem's own inputs; stress inputs have to tell.
#   request: {"tolerance": {"preset": "PRESET_ALLCLOSE"}, "stress_inputs": true}
#
# S02_sum_constant: half of the length for every sum.
#   Passes allclose(1e-2): nothing is read.
#   problem: weak_sum
#   -         return torch.zeros_like(x)
#   +         return torch.full((x.shape[0], 1, x.shape[2]), x.shape[1] / 2, device=x.device)
#
# S02_sum_constant_loose: half of the length for every sum, under a tolerance of 1e-2.
#   It passes that tolerance on the problem's own inputs; stress inputs have to tell.
#   problem: weak_sum
#   request: {"tolerance": {"preset": "PRESET_LOOSE"}, "stress_inputs": true}
#   -         return torch.zeros_like(x)
#   +         return torch.full((x.shape[0], 1, x.shape[2]), x.shape[1] / 2, device=x.device)
