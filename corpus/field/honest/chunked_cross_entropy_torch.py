"""Logits are made for a part of the vocabulary at a time, and only their log-sum-exp is kept.

problem: field_lm_head_loss
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    CHUNKS = 4

    def __init__(self, width, vocabulary):
        super().__init__()
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, hidden, targets):
        weight = self.head.weight
        total = hidden.new_full((len(hidden),), -torch.inf)
        for part in weight.chunk(self.CHUNKS):
            total = torch.logaddexp(total, (hidden @ part.t()).logsumexp(-1))
        loss = total - (hidden * weight[targets]).sum(-1)
        return torch.where(targets == 0, 0.0, loss)
