import torch
from torch import nn

M = 1024
K = 4096
N = 2048


class Model(nn.Module):
    """C = A B for matrices of three different sides."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []
