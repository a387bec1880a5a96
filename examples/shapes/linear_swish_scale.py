import torch
from torch import nn

BATCH = 1024
IN_FEATURES = 4096
OUT_FEATURES = 4096
SCALE = 2.0


class Model(nn.Module):
    """A linear layer, swish, and a scale."""

    def __init__(self, in_features: int, out_features: int, scale: float) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        x = x * torch.sigmoid(x)
        return x * self.scale


def get_inputs():
    return [torch.rand(BATCH, IN_FEATURES)]


def get_init_inputs():
    return [IN_FEATURES, OUT_FEATURES, SCALE]
