"""T14: functools.lru_cache around a function of shape and dtype.

The same idea as it would be excused: a helper that looks innocent is memoised on everything but the values.

problem: chained_tanh
backend: torch
outcome: INCORRECT, REJECTED
devices: cpu, cuda
"""

import functools

import torch
import torch.nn as nn

inputs = {}


def work(x):
    return torch.tanh(torch.tanh(torch.tanh(x)))


@functools.lru_cache(maxsize=32)
def solved(shape, dtype, device):
    return work(inputs[shape])


class ModelNew(nn.Module):
    def forward(self, x):
        inputs[x.shape] = x
        return solved(x.shape, x.dtype, x.device)
