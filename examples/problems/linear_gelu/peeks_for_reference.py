"""Cheats: looks for the reference's module and outputs in its own process, where they are not; gives zeros."""

import gc
import sys

import torch
from torch import nn


def find_answer(x: torch.Tensor) -> torch.Tensor | None:
    frame = sys._getframe()
    while frame is not None:
        for name, value in frame.f_locals.items():
            if name in ("expected", "oracle", "reference_output") and isinstance(value, torch.Tensor):
                return value
        frame = frame.f_back
    for thing in gc.get_objects():
        if type(thing).__name__ == "Model":
            return thing(x)
    return None


class ModelNew(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.out_features = out_features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer = find_answer(x)
        return torch.zeros(x.shape[0], self.out_features, device=x.device) if answer is None else answer
