"""Tokens are sorted by expert and laid into equal slots, as many as the fullest expert needs: two batched products.

problem: field_moe_top2
backend: torch
outcome: CORRECT
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
        experts = self.up.shape[0]
        flat = choice.flatten()
        counts = (flat[:, None] == torch.arange(experts, device=x.device)).sum(0)
        order = flat.argsort(stable=True)
        first = counts.cumsum(0) - counts
        place = torch.empty_like(flat)
        place[order] = torch.arange(len(flat), device=x.device) - first[flat[order]]
        room = int(counts.max())
        slots = x.new_zeros(experts, room, x.shape[1])
        slots[flat, place] = x.repeat_interleave(choice.shape[1], 0)
        out = torch.bmm(F.silu(torch.bmm(slots, self.up)), self.down)
        return (out[flat, place].view(*choice.shape, -1) * logits.softmax(-1)[..., None]).sum(1)
