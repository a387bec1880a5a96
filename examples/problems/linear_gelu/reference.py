import torch
from torch import nn
from torch.nn import functional as F

BATCH = 256
IN_FEATURES = 256
OUT_FEATURES = 256


class Model(nn.Module):
    """A linear layer with bias, then exact GELU."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(BATCH, IN_FEATURES)]


def get_init_inputs():
    return [IN_FEATURES, OUT_FEATURES]
