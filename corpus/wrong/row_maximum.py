"""A row maximum that compares magnitudes and returns the element with the largest one.

It shows only in rows whose largest magnitude is negative: about half of them.

problem: row_maximum
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def largest_of_row(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0)
    magnitude = tl.max(tl.abs(x), axis=0)
    largest = tl.max(tl.where((tl.abs(x) == magnitude) & inside, x, float("-inf")), axis=0)
    tl.store(out_ptr + row, largest)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device)
        largest_of_row[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out


# Above is row_maximum_of_magnitudes. Variants, with what differs:
#
# row_maximum_padding_is_zero: A row maximum whose masked loads give zero instead of minus infinity.
#   It shows only in rows whose elements are all negative.
#   -     magnitude = tl.max(tl.abs(x), axis=0)
#   -     largest = tl.max(tl.where((tl.abs(x) == magnitude) & inside, x, float("-inf")), axis=0)
#   -     tl.store(out_ptr + row, largest)
#   +     tl.store(out_ptr + row, tl.max(x, axis=0))
