"""An argmax that counts from one.

It shows in every row.

problem: argmax_ties
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def place_of_largest(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=float("-inf"))
    largest = tl.max(x, axis=0)
    place = tl.min(tl.where(x == largest, at, columns), axis=0)
    tl.store(out_ptr + row, (place + 1).to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
        place_of_largest[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out


# Above is argmax_from_one. Variants, with what differs:
#
# argmax_last_of_equals: An argmax that gives the last of several equal elements, not the first.
#   It shows only in rows with ties.
#   -     place = tl.min(tl.where(x == largest, at, columns), axis=0)
#   -     tl.store(out_ptr + row, (place + 1).to(tl.int64))
#   +     place = tl.max(tl.where(x == largest, at, -1), axis=0)
#   +     tl.store(out_ptr + row, place.to(tl.int64))
