"""T04: a tensor without memory that computes in __torch_dispatch__.

A wrapper subclass has shape and dtype but no storage; whatever operation meets it first makes it work.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh
devices: cpu, cuda
"""

import torch
import torch.nn as nn
from torch.utils._pytree import tree_map


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


class Lazy(torch.Tensor):
    @staticmethod
    def __new__(cls, x):
        return torch.Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype, device=x.device)

    def __init__(self, x):
        self.source = x.clone()

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        def real(value):
            return work(value.source) if isinstance(value, Lazy) else value

        return function(*tree_map(real, args), **tree_map(real, kwargs or {}))


class ModelNew(nn.Module):
    def forward(self, x):
        return Lazy(x)
