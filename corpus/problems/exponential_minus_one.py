"""exp(x) - 1 of small inputs."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
COUNT = 4096 * 4096 - 3 if BIG else 15_013


class Model(nn.Module):
    def forward(self, x):
        return torch.expm1(x)


def get_inputs():
    return [torch.rand(COUNT) * 1e-4]


def get_init_inputs():
    return []
