"""Correct: raw CUDA in files of their own, one block per row. `native` is the module of the .cu files beside this one."""

import native
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        native.softmax_rows(x, out, x.shape[0], x.shape[1])  # the stream is left out: it is torch's current one
        return out
