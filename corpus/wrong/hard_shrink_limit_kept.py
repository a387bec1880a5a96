"""A HardShrink that keeps elements that are exactly at the limit.

It shows only for inputs of exactly 0.5 or -0.5.

problem: hard_shrink_steps
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def hard_shrink(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    y = tl.where(tl.abs(x) >= 0.5, x, 0.0)
    tl.store(out_ptr + at, y, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        hard_shrink[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
