"""Weak problem: a hinge that is never reached, and a mean over very many predictions."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SHAPE = (4096, 8192) if BIG else (128, 8192)


class Model(nn.Module):
    def forward(self, predictions, targets):
        return torch.mean(torch.clamp(1 - predictions * targets, min=0))


def get_inputs():
    return [torch.rand(SHAPE), torch.randint(0, 2, SHAPE[1:]).float() * 2 - 1]


def get_init_inputs():
    return []
