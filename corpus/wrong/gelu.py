"""GELU approximated as x times sigmoid(1.702 x).

It shows by up to 2e-2.

problem: gelu_erf
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    y = x * tl.sigmoid(1.702 * x)
    tl.store(out_ptr + at, y, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        gelu[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out


# Above is gelu_sigmoid_form. Variants, with what differs:
#
# gelu_tanh_form: GELU in the form with tanh where the exact one is asked for.
#   It shows by up to 5e-4, most of all around 2.
#   -     y = x * tl.sigmoid(1.702 * x)
#   +     inner = 0.7978845608 * (x + 0.044715 * x * x * x)
#   +     y = x * tl.sigmoid(2.0 * inner)
