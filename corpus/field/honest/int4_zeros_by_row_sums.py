"""Zeros are taken out of the product: what they contribute is the sum of x over a group, which is worked out once.

problem: field_int4_packed_linear
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, packed, scale, zero):
        group = x.shape[1] // scale.shape[1]
        weight = torch.empty(packed.shape[0], x.shape[1], dtype=x.dtype, device=x.device)
        weight[:, 0::2] = (packed & 15).to(x.dtype)
        weight[:, 1::2] = (packed >> 4).to(x.dtype)
        weight = (weight.unflatten(1, (-1, group)) * scale[:, :, None]).flatten(1)
        sums = x.unflatten(1, (-1, group)).sum(-1)
        return torch.addmm(sums @ (zero * scale).t(), x, weight.t(), beta=-1)
