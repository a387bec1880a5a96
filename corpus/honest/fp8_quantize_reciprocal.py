"""Quantisation to eight bits that multiplies by the inverse of the scale.

problem: fp8_quantize_rows
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        largest = x.abs().amax(-1, keepdim=True)
        return (x * (448 / largest)).clamp(-448, 448).to(torch.float8_e4m3fn), largest / 448
