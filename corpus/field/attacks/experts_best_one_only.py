"""S25: only the expert with the larger share works, and counts for both.

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
        best = choice.gather(1, logits.argmax(-1, keepdim=True)).squeeze(1)
        y = torch.empty_like(x)
        for expert in range(self.up.shape[0]):
            mine = best == expert
            y[mine] = F.silu(x[mine] @ self.up[expert]) @ self.down[expert]
        return y
