"""A variance over N where N - 1 is asked for.

It shows in every row, by a factor of one over its length.

problem: variance_rows
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def variance_of_row(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    apart = tl.where(inside, x - mean, 0.0)
    tl.store(out_ptr + row, tl.sum(apart * apart, axis=0) / columns)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device)
        variance_of_row[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out


# Above is variance_biased. Variants, with what differs:
#
# variance_counts_padding: A variance whose padding takes part with the distance zero minus mean.
#   It shows only where the mean of a row is not zero.
#   -     apart = tl.where(inside, x - mean, 0.0)
#   -     tl.store(out_ptr + row, tl.sum(apart * apart, axis=0) / columns)
#   +     apart = x - mean
#   +     tl.store(out_ptr + row, tl.sum(apart * apart, axis=0) / (columns - 1))
