"""Correct: a block of features per program, reduced over blocks of steps."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def max_kernel(x_ptr, out_ptr, steps, features, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    batch = tl.program_id(1)
    feature = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    largest = tl.full((STEPS, BLOCK), -float("inf"), tl.float32)
    for start in range(0, steps, STEPS):
        step = start + tl.arange(0, STEPS)
        mask = (step < steps)[:, None] & (feature < features)[None, :]
        offsets = (batch * steps + step[:, None]) * features + feature[None, :]
        largest = tl.maximum(largest, tl.load(x_ptr + offsets, mask=mask, other=-float("inf")))
    tl.store(out_ptr + batch * features + feature, tl.max(largest, axis=0), mask=feature < features)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, steps, features = x.shape
        out = torch.empty(batch, features, device=x.device, dtype=x.dtype)
        max_kernel[(triton.cdiv(features, 128), batch)](x, out, steps, features, STEPS=32, BLOCK=128)
        return out
