"""S16: patches the generators, so that all inputs are zeros.

problem: normal_gelu
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn


def nothing(*shape, **more):
    more = {key: value for key, value in more.items() if key in ("device", "dtype")}
    return torch.zeros(*shape, **more)


torch.randn = torch.rand = nothing
torch.Tensor.normal_ = torch.Tensor.uniform_ = torch.Tensor.zero_


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return torch.zeros_like(x)
