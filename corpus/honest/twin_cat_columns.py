"""The honest twin of attacks on cat_columns: two copies on the current stream.

problem: cat_columns
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty(a.shape[0], a.shape[1] + b.shape[1], dtype=a.dtype, device=a.device)
        out[:, : a.shape[1]].copy_(a)
        out[:, a.shape[1] :].copy_(b)
        return out
