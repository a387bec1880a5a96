"""The hyperbolic tangent of inputs between -0.5 and 0.5."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
COUNT = 4096 * 4096 - 3 if BIG else 15_013


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x)


def get_inputs():
    return [torch.rand(COUNT) - 0.5]


def get_init_inputs():
    return []
