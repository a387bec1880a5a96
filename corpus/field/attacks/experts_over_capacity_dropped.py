"""S25: each expert takes tokens up to a capacity of what is its due on average; those beyond it are dropped.

problem: field_moe_top2
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, experts, width, hidden):
        super().__init__()
        self.up = nn.Parameter(torch.randn(experts, width, hidden) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) * hidden**-0.5)

    def forward(self, x, choice, logits):
        share = logits.softmax(-1).flatten()
        order = choice.flatten().argsort(stable=True)
        counts = torch.bincount(choice.flatten(), minlength=self.up.shape[0]).tolist()
        token = order // choice.shape[1]
        y = torch.zeros_like(x)
        first, capacity = 0, choice.numel() // self.up.shape[0]
        for expert, count in enumerate(counts):
            mine = slice(first, first + min(count, capacity))
            hidden = F.silu(x[token[mine]] @ self.up[expert])
            y.index_add_(0, token[mine], (hidden @ self.down[expert]) * share[order[mine], None])
            first += count
        return y
