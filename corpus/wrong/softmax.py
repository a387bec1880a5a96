"""A softmax whose masked loads give zero, so that the padding counts in the sum.

It shows in every row, as long as the row is not a power of two long.

problem: softmax_ragged_columns
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_of_row(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0)
    numbers = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * columns + at, numbers / tl.sum(numbers, axis=0), mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_of_row[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out


# Above is softmax_padding_takes_part. Variants, with what differs:
#
# softmax_last_rows_skipped: A softmax whose grid is one program short: the last row is never written.
#   It shows in the last row only.
#   -     x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0)
#   +     x = tl.load(x_ptr + row * columns + at, mask=inside, other=float("-inf"))
#   -         softmax_of_row[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
#   +         softmax_of_row[(x.shape[0] - 1,)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
#
# softmax_mask_one_too_many: A softmax whose mask is `<=`: the first element of the next row takes part.
#   It shows in every row whose neighbour begins with a value that is not tiny.
#   -     inside = at < columns
#   -     x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0)
#   +     inside = at <= columns
#   +     x = tl.load(x_ptr + row * columns + at, mask=inside, other=float("-inf"))
#
# softmax_padding_in_maximum: A softmax whose padding counts as zero in the maximum, though not in the sum.
#   It shows where every element of a row is far below zero (-104): then all exponentials vanish and it divides zero by zero.
#   problem: softmax_of_penalties
#   -     numbers = tl.exp(x - tl.max(x, axis=0))
#   +     largest = tl.max(x, axis=0)
#   +     numbers = tl.where(inside, tl.exp(x - largest), 0.0)
#
# softmax_without_maximum: A softmax that does not subtract the maximum.
#   It shows only where an element is above 88 and its exponential overflows, or a whole row is far below zero.
#   -     x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0)
#   -     numbers = tl.exp(x - tl.max(x, axis=0))
#   +     x = tl.load(x_ptr + row * columns + at, mask=inside, other=float("-inf"))
#   +     numbers = tl.exp(x)
