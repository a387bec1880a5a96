"""Correct: all steps of a block of classes at once."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def max_kernel(x_ptr, out_ptr, steps, classes, STEPS: tl.constexpr, CLASSES: tl.constexpr):
    batch = tl.program_id(0)
    step = tl.arange(0, STEPS)
    klass = tl.program_id(1) * CLASSES + tl.arange(0, CLASSES)
    mask = (step < steps)[:, None] & (klass < classes)[None, :]
    offsets = (batch * steps + step[:, None]) * classes + klass[None, :]
    x = tl.load(x_ptr + offsets, mask=mask, other=-float("inf"))
    tl.store(out_ptr + batch * classes + klass, tl.max(x, axis=0), mask=klass < classes)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        batch, steps, classes = x.shape
        out = torch.empty(batch, classes, device=x.device, dtype=x.dtype)
        block = triton.next_power_of_2(steps)
        max_kernel[(batch, triton.cdiv(classes, 128))](x, out, steps, classes, STEPS=block, CLASSES=128, num_warps=8)
        return out
