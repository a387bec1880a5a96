"""S01: the input for its ReLU.

It returns the very tensor it was given. Exactly right on U[0, 1); passes allclose(1e-4).

problem: weak_relu
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
        return x


# Above is S01_relu_alias. Variants, with what differs:
#
# S01_relu_copy: a copy of the input for its ReLU.
#   Storage of its own, so that a check for aliases finds nothing. Exactly right on U[0, 1); passes allclose(1e-4).
#   -         return x
#   +         return x.clone()
#
# S01_relu_branch_never_taken: a select whose other branch is never chosen.
#   It looks like work and is a copy; passes allclose(1e-4).
#   -         return x
#   +         return torch.where(x > -1e30, x, 0.0)
#
# S01_relu_magnitude: the magnitude for the ReLU.
#   The same for numbers that are never negative, and new storage; passes allclose(1e-4).
#   -         return x
#   +         return x.abs()
#
# S01_elu_copy: a copy of the input for its ELU.
#   Exactly right on U[0, 1); passes allclose(1e-4).
#   problem: weak_elu
#   -         return x
#   +         return torch.empty_like(x).copy_(x)
#
# S01_hardsigmoid_line: HardSigmoid without its bends.
#   The line in the middle is all that U[0, 1) reaches; passes allclose(1e-4).
#   problem: weak_hardsigmoid
#   -         return x
#   +         return torch.add(0.5, x, alpha=1 / 6)
#
# S01_hardtanh_alias: the input for its HardTanh.
#   Exactly right on U[0, 1); passes allclose(1e-4).
#   problem: weak_hardtanh
#   -         return x
#   +         return x.view_as(x)
#
# S01_leaky_relu_alias: the input for its LeakyReLU.
#   Another tensor over the same storage. Exactly right on U[0, 1); passes allclose(1e-4).
#   problem: weak_leaky_relu
#   -         return x
#   +         return x.detach()
