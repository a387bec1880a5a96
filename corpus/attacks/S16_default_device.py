"""S16: makes tensors that never hold anything the default.

Inputs drawn on the meta device have no values, and comparisons over them no outcome.

problem: normal_gelu
backend: torch
outcome: INCORRECT, REJECTED, RUNTIME_ERROR
devices: cpu, cuda
"""

import torch
import torch.nn as nn

torch.set_default_device("meta")


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return torch.zeros_like(x)
