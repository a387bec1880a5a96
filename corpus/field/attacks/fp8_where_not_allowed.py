"""S23: per-row scaling to eight bits, as a quantised layer does it, where the problem is float32.

problem: linear_gelu
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


def quantized(x):
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448
    return (x / scale).to(torch.float8_e4m3fn), scale


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.linear = nn.Linear(features, hidden)

    def forward(self, x):
        low, scale = quantized(x)
        weight, weight_scale = quantized(self.linear.weight.detach())
        h = (low.half() @ weight.half().t()).float() * scale * weight_scale.t() + self.linear.bias
        return F.gelu(h, approximate="tanh")
