"""A cross entropy without its label smoothing.

It shows in every row.

problem: cross_entropy_smoothed
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cross_entropy_row(x_ptr, target_ptr, out_ptr, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < classes
    x = tl.load(x_ptr + row * classes + at, mask=inside, other=float("-inf"))
    target = tl.load(target_ptr + row)
    largest = tl.max(x, axis=0)
    logarithm = largest + tl.log(tl.sum(tl.exp(x - largest), axis=0))
    chosen = tl.sum(tl.where(at == target, x, 0.0), axis=0)
    tl.sum(tl.where(inside, x, 0.0), axis=0)
    tl.store(out_ptr + row, logarithm - chosen)


class ModelNew(nn.Module):
    def forward(self, x, target):
        losses = torch.empty(x.shape[0], device=x.device)
        cross_entropy_row[(x.shape[0],)](x, target, losses, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return losses


# Above is smoothing_left_out. Variants, with what differs:
#
# smoothing_over_the_others: Label smoothing that spreads over the other classes only.
#   It shows by about one part in a thousand.
#   -     tl.sum(tl.where(inside, x, 0.0), axis=0)
#   -     tl.store(out_ptr + row, logarithm - chosen)
#   +     total = tl.sum(tl.where(inside, x, 0.0), axis=0)
#   +     smooth = logarithm - (total - chosen) / (classes - 1)
#   +     tl.store(out_ptr + row, 0.8 * (logarithm - chosen) + 0.2 * smooth)
