"""Quantisation to eight bits, with a scale for each row."""

import torch
import torch.nn as nn

ROWS = 4096 if torch.cuda.is_available() else 64


class Model(nn.Module):
    def forward(self, x):
        scale = x.abs().amax(-1, keepdim=True) / 448
        return (x / scale).to(torch.float8_e4m3fn), scale


def get_inputs():
    return [torch.randn(ROWS, 256 if ROWS < 100 else 4096)]


def get_init_inputs():
    return []
