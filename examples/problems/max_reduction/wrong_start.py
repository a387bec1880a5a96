"""Wrong on negative values: the running maximum starts at 0."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def max_kernel(x_ptr, out_ptr, steps, classes, STEPS: tl.constexpr, CLASSES: tl.constexpr):
    batch = tl.program_id(0)
    klass = tl.arange(0, CLASSES)
    largest = tl.zeros((CLASSES,), tl.float32)
    for start in range(0, steps, STEPS):
        step = start + tl.arange(0, STEPS)
        x = tl.load(x_ptr + (batch * steps + step[:, None]) * classes + klass[None, :])
        largest = tl.maximum(largest, tl.max(x, axis=0))
    tl.store(out_ptr + batch * classes + klass, largest)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, steps, classes = x.shape
        out = torch.empty(batch, classes, device=x.device, dtype=x.dtype)
        max_kernel[(batch,)](x, out, steps, classes, STEPS=64, CLASSES=256, num_warps=8)
        return out
