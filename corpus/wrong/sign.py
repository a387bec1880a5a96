"""A sign as x over |x|.

It shows only for inputs of exactly zero: no number instead of zero.

problem: sign_flat
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sign(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    y = x / tl.abs(x)
    tl.store(out_ptr + at, y, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        sign[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out


# Above is sign_by_division. Variants, with what differs:
#
# sign_without_zero: A sign that takes zero for a negative number.
#   It shows only for inputs of exactly zero.
#   -     y = x / tl.abs(x)
#   +     y = tl.where(x > 0, 1.0, -1.0)
