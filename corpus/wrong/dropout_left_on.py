"""A dropout that is applied, though it is switched off.

It shows in one element of ten.

problem: dropout_inference
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def silu_dropout(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    kept = tl.rand(11, at) >= 0.1
    y = tl.where(kept, x * tl.sigmoid(x) / 0.9, 0.0)
    tl.store(out_ptr + at, y, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, probability):
        super().__init__()

    def forward(self, x):
        out = torch.empty_like(x)
        silu_dropout[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
