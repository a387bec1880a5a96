"""The k largest by keys that are all different: ordered bits of the value above, the position from behind below.

problem: stable_top_k
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k

    def forward(self, x):
        columns = x.shape[1]
        bits = (x + 0.0).view(torch.int32)  # minus zero becomes zero
        ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).long()
        behind = torch.arange(columns - 1, -1, -1, device=x.device)
        keys = torch.topk(ordered * (1 << 20) + behind, self.k, dim=1).values
        indices = columns - 1 - keys % (1 << 20)
        return [x.gather(1, indices), indices]
