"""Operands are widened and scaled in views of their blocks, the product is the library's in float32, rounded once.

problem: field_fp8_block_scaled
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b, scale_a, scale_b):
        group = a.shape[1] // scale_a.shape[1]
        left = a.float().unflatten(1, (-1, group)) * scale_a[:, :, None]
        right = b.float().unflatten(1, (-1, group)).unflatten(0, (-1, group)) * scale_b[:, None, :, None]
        return (left.flatten(1) @ right.flatten(2).flatten(0, 1).t()).bfloat16()
