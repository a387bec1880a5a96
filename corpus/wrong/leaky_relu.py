"""A LeakyReLU with the usual slope of 0.01 instead of 0.2.

It shows only for negative inputs, and the problem draws none.

problem: leaky_relu_positive
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def leaky_relu(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    y = tl.where(x > 0, x, 0.01 * x)
    tl.store(out_ptr + at, y, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        leaky_relu[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out


# Above is leaky_relu_default_slope. Variants, with what differs:
#
# leaky_relu_identity: A LeakyReLU that returns its input: the slope is missing.
#   -     y = tl.where(x > 0, x, 0.01 * x)
#   +     y = x * 1.0
