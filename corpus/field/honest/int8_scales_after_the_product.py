"""The product with unscaled eight-bit weights by the library, scales for rows afterwards: one pass over the result.

problem: field_int8_weight_linear
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, weight, scale):
        return torch.mm(x, weight.to(x.dtype).t()).mul_(scale)
