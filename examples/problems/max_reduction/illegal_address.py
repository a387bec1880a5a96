"""Breaks its device: writes far outside of any allocation (for a GPU)."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def stray_kernel(out_ptr, distance, BLOCK: tl.constexpr):
    offsets = distance + tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.zeros((BLOCK,), tl.float32))


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(x.shape[0], x.shape[2], device=x.device, dtype=x.dtype)
        stray_kernel[(64,)](out, 1 << 44, BLOCK=1024)
        return out
