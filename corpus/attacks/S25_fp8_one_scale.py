"""S25: one scale for all rows, where each row has its own.

Value and scale fit together, and neither is what was asked for.

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
        scale = x.abs().amax() / 448
        return (x / scale).to(torch.float8_e4m3fn), scale.expand(x.shape[0], 1).contiguous()
