"""S25: quantisation that cuts off where it should round.

Half of the numbers are the next one of the format, and none is further off.

problem: fp8_quantize_rows
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        scale = x.abs().amax(-1, keepdim=True) / 448
        bits = (x / scale).view(torch.int32) & -(1 << 20)
        return bits.view(torch.float32).to(torch.float8_e4m3fn), scale
