"""A length whose squares are computed in half precision.

It shows only for inputs above 180, whose squares overflow, or below 1e-3, whose squares vanish.

problem: length_half
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def length_of_pair(x_ptr, y_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    y = tl.load(y_ptr + at, mask=inside, other=0.0)
    total = x * x + y * y
    length = tl.sqrt(total.to(tl.float32)).to(tl.float16)
    tl.store(out_ptr + at, length, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        length_of_pair[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
        return out
