import torch
from torch import nn
from torch.nn import functional as F

BATCH = 1024
IN_FEATURES = 4096
OUT_FEATURES = 8192


class Model(nn.Module):
    """A linear layer, exact GELU, and softmax over the features."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(F.gelu(self.linear(x)), dim=1)


def get_inputs():
    return [torch.rand(BATCH, IN_FEATURES)]


def get_init_inputs():
    return [IN_FEATURES, OUT_FEATURES]
