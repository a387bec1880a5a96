"""A normalisation that adds 1e-6 to the sum of squares instead of a floor of 1e-12 under the length.

It shows only in rows whose length is below about 0.05: small values.

problem: normalize_rows
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def normalize_row(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0)
    total = tl.sum(x * x, axis=0)
    tl.store(out_ptr + row * columns + at, x * tl.rsqrt(total + 1e-6), mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        normalize_row[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out


# Above is normalize_epsilon_inside. Variants, with what differs:
#
# normalize_zero_rows: A normalisation without the floor under the length of a row.
#   It shows only in rows of zeros: zero over zero is no number.
#   -     total = tl.sum(x * x, axis=0)
#   -     tl.store(out_ptr + row * columns + at, x * tl.rsqrt(total + 1e-6), mask=at < columns)
#   +     length = tl.sqrt(tl.sum(x * x, axis=0))
#   +     tl.store(out_ptr + row * columns + at, x / length, mask=at < columns)
