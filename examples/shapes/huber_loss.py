import torch
from torch import nn
from torch.nn import functional as F

ROWS = 8192
COLUMNS = 4096


class Model(nn.Module):
    """Smooth L1 loss: squares near zero, absolute values beyond one."""

    def forward(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.smooth_l1_loss(predictions, targets)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
