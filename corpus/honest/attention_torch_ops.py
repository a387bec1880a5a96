"""Causal attention from PyTorch's operations, with a mask that is made once for each length.

problem: causal_attention
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.masks = {}

    def forward(self, query, key, value):
        length, width = query.shape[-2:]
        if length not in self.masks:
            everything = torch.full((length, length), -float("inf"), device=query.device)
            self.masks[length] = torch.triu(everything, diagonal=1)
        scores = torch.matmul(query * width**-0.5, key.transpose(-1, -2)).add_(self.masks[length])
        return torch.matmul(torch.softmax(scores, dim=-1), value)
