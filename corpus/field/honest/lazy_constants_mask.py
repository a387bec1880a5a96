"""A bias with its causal mask for each shape, dtype and device, built when it is first needed and kept in a dict.

problem: field_alibi_softmax
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.biases = {}

    def _bias(self, heads, length, like):
        key = (heads, length, like.dtype, like.device)
        if key not in self.biases:
            slopes = 2.0 ** (-8.0 / heads * torch.arange(1, heads + 1, device=like.device))
            at = torch.arange(length, device=like.device)
            distance = at[None, :] - at[:, None]
            bias = (slopes[:, None, None].to(like.dtype) * distance).masked_fill(distance > 0, -torch.inf)
            self.biases[key] = bias
        return self.biases[key]

    def forward(self, scores):
        return torch.softmax(scores + self._bias(scores.shape[1], scores.shape[2], scores), dim=-1)
