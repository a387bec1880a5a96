import torch
from torch import nn

ROWS = 2048
COLUMNS = 32768


class Model(nn.Module):
    """A long matrix times one vector, bound by reading."""

    def forward(self, a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a, x)


def get_inputs():
    return [torch.rand(ROWS, COLUMNS), torch.rand(COLUMNS, 1)]


def get_init_inputs():
    return []
