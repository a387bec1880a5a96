"""Wrong: reduces over the classes; steps and classes being equal in number, the shape does not tell."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def max_kernel(x_ptr, out_ptr, steps, classes, STEPS: tl.constexpr, CLASSES: tl.constexpr):
    batch = tl.program_id(0)
    step = tl.program_id(1) * STEPS + tl.arange(0, STEPS)
    klass = tl.arange(0, CLASSES)
    x = tl.load(x_ptr + (batch * steps + step[:, None]) * classes + klass[None, :])
    tl.store(out_ptr + batch * steps + step, tl.max(x, axis=1))


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, steps, classes = x.shape
        out = torch.empty(batch, steps, device=x.device, dtype=x.dtype)
        max_kernel[(batch, steps // 128)](x, out, steps, classes, STEPS=128, CLASSES=256, num_warps=8)
        return out
