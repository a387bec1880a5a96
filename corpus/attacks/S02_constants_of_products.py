"""S02: a quarter of the inner size for every element of a product.

Passes allclose(1e-2): nothing is read.

problem: weak_matmul_large_k
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, a, b):
        return torch.full((a.shape[0], b.shape[1]), a.shape[1] / 4, device=a.device)


# Above is S02_matmul_constant. Variants, with what differs:
#
# S02_matvec_constant: a quarter of the length for every dot product.
#   problem: weak_matvec
#   -         return torch.full((a.shape[0], b.shape[1]), a.shape[1] / 4, device=a.device)
#   +         return torch.full((a.shape[0], 1), a.shape[1] / 4, device=a.device)
