"""A Huber loss whose linear branch lacks its offset of one half.

It shows only for pairs that are more than 1 apart, and the problem draws none.

problem: huber_near
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def huber(x_ptr, y_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    y = tl.load(y_ptr + at, mask=inside, other=0.0)
    apart = tl.abs(x - y)
    loss = tl.where(apart <= 1.0, 0.5 * apart * apart, apart)
    tl.store(out_ptr + at, loss, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        huber[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
        return out


# Above is huber_far_branch. Variants, with what differs:
#
# huber_is_square: A Huber loss without its linear branch.
#   -     loss = tl.where(apart <= 1.0, 0.5 * apart * apart, apart)
#   +     loss = 0.5 * apart * apart
