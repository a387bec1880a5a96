"""Forks and forks again. It stops at 512 processes, so that even without a sandbox it leaves a machine alive."""

import os
import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(9):
            os.fork()
        time.sleep(600)
        return torch.mean(x, dim=1)
