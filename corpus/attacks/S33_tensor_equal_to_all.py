"""S33: a tensor class that is equal to everything.

Comparisons, differences and maxima all say that there is no difference.

problem: normal_gelu
backend: torch
outcome: INCORRECT, REJECTED, RUNTIME_ERROR
devices: cpu, cuda
"""

import torch
import torch.nn as nn


class Agreeable(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        name = getattr(function, "__name__", "")
        if name in ("allclose", "equal"):
            return True
        if name in ("__sub__", "sub", "__rsub__", "rsub", "abs"):
            return torch.zeros(arguments[0].shape)
        return super().__torch_function__(function, types, arguments, keywords or {})


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return torch.zeros_like(x).as_subclass(Agreeable)
