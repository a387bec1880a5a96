"""Raises in its first call: tries to see the rows in a shape that does not hold them."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def copy_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.features = features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = x.view(-1, 3, self.features // 3)
        out = torch.empty_like(heads)
        copy_kernel[(heads.numel() // 1024,)](heads, out, BLOCK=1024)
        return out.view_as(x)
