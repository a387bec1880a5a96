"""Correct: a block of features per program, summed over blocks of steps."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def mean_kernel(x_ptr, out_ptr, steps, features, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    batch = tl.program_id(1)
    feature = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((STEPS, BLOCK), tl.float32)
    for start in range(0, steps, STEPS):
        step = start + tl.arange(0, STEPS)
        mask = (step < steps)[:, None] & (feature < features)[None, :]
        total += tl.load(x_ptr + (batch * steps + step[:, None]) * features + feature[None, :], mask=mask, other=0.0)
    tl.store(out_ptr + batch * features + feature, tl.sum(total, axis=0) / steps, mask=feature < features)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, steps, features = x.shape
        out = torch.empty(batch, features, device=x.device, dtype=x.dtype)
        mean_kernel[(triton.cdiv(features, 128), batch)](x, out, steps, features, STEPS=32, BLOCK=128)
        return out
