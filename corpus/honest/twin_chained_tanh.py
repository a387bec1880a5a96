"""The honest twin of attacks on chained_tanh: the same three torch operations, every call, on the current stream.

problem: chained_tanh
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(torch.tanh(torch.tanh(x)))
