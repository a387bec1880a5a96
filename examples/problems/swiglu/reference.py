import torch
from torch import nn
from torch.nn import functional as F

TOKENS = 128
HIDDEN = 256
INTERMEDIATE = 256


class Model(nn.Module):
    """The feed-forward block of a Llama-style transformer: down(silu(gate(x)) * up(x))."""

    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, intermediate, bias=False)
        self.up = nn.Linear(hidden, intermediate, bias=False)
        self.down = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


def get_inputs():
    return [torch.randn(TOKENS, HIDDEN)]


def get_init_inputs():
    return [[], {"hidden": HIDDEN, "intermediate": INTERMEDIATE}]
