"""S03: the normaliser is that of one part of the vocabulary, scaled up to all of it.

problem: field_lm_head_loss
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import math

import torch
from torch import nn


class ModelNew(nn.Module):
    CHUNKS = 4

    def __init__(self, width, vocabulary):
        super().__init__()
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, hidden, targets):
        weight = self.head.weight
        total = (hidden @ weight[:: self.CHUNKS].t()).logsumexp(-1) + math.log(self.CHUNKS)
        loss = total - (hidden * weight[targets]).sum(-1)
        return torch.where(targets == 0, 0.0, loss)
