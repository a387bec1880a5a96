"""Correct: a running maximum over blocks of steps."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def max_kernel(x_ptr, out_ptr, steps, classes, STEPS: tl.constexpr, CLASSES: tl.constexpr):
    batch = tl.program_id(0)
    klass = tl.program_id(1) * CLASSES + tl.arange(0, CLASSES)
    largest = tl.full((CLASSES,), -float("inf"), tl.float32)
    for start in range(0, steps, STEPS):
        step = start + tl.arange(0, STEPS)
        mask = (step < steps)[:, None] & (klass < classes)[None, :]
        offsets = (batch * steps + step[:, None]) * classes + klass[None, :]
        x = tl.load(x_ptr + offsets, mask=mask, other=-float("inf"))
        largest = tl.maximum(largest, tl.max(x, axis=0))
    tl.store(out_ptr + batch * classes + klass, largest, mask=klass < classes)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        batch, steps, classes = x.shape
        out = torch.empty(batch, classes, device=x.device, dtype=x.dtype)
        max_kernel[(batch, triton.cdiv(classes, 256))](x, out, steps, classes, STEPS=64, CLASSES=256, num_warps=8)
        return out
