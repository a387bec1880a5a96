"""Wrong: takes the maximum through logarithms, and so gives NaN for every negative value."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def max_kernel(x_ptr, out_ptr, steps, classes, STEPS: tl.constexpr, CLASSES: tl.constexpr):
    batch = tl.program_id(0)
    klass = tl.program_id(1) * CLASSES + tl.arange(0, CLASSES)
    step = tl.arange(0, STEPS)
    x = tl.load(x_ptr + (batch * steps + step[:, None]) * classes + klass[None, :])
    tl.store(out_ptr + batch * classes + klass, tl.exp(tl.log(tl.max(x, axis=0))))


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, steps, classes = x.shape
        out = torch.empty(batch, classes, device=x.device, dtype=x.dtype)
        max_kernel[(batch, classes // 128)](x, out, steps, classes, STEPS=256, CLASSES=128, num_warps=8)
        return out
