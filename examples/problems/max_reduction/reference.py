import torch
from torch import nn

BATCH = 16
STEPS = 256
CLASSES = 256


class Model(nn.Module):
    """Largest log-probability of each class over all steps. Every value is negative."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.max(x, dim=1).values


def get_inputs():
    return [torch.log(torch.rand(BATCH, STEPS, CLASSES) * 0.9 + 0.05)]


def get_init_inputs():
    return []
