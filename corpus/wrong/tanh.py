"""A hyperbolic tangent as a ratio of exponentials that overflow.

It shows for inputs above 44, infinity over infinity, and in lost digits where all inputs are tiny.

problem: tanh_near_zero
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tanh(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    grown = tl.exp(2.0 * x)
    y = (grown - 1.0) / (grown + 1.0)
    tl.store(out_ptr + at, y, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        tanh[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out


# Above is tanh_by_exponentials. Variants, with what differs:
#
# tanh_polynomial: A hyperbolic tangent by a polynomial that holds between -0.6 and 0.6.
#   It shows only for larger inputs, and the problem draws none.
#   -     grown = tl.exp(2.0 * x)
#   -     y = (grown - 1.0) / (grown + 1.0)
#   +     square = x * x
#   +     inner = 17.0 / 315 - square * (62.0 / 2835 - square * (1382.0 / 155925 - square * 21844.0 / 6081075))
#   +     y = x * (1.0 - square * (1.0 / 3 - square * (2.0 / 15 - square * inner)))
