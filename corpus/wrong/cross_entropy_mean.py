"""A mean cross entropy that divides by all rows, also by those to be ignored.

It shows wherever a row is to be ignored.

problem: cross_entropy_ignored
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
    tl.store(out_ptr + row, tl.where(target >= 0, logarithm - chosen, 0.0))


class ModelNew(nn.Module):
    def forward(self, x, target):
        losses = torch.empty(x.shape[0], device=x.device)
        cross_entropy_row[(x.shape[0],)](x, target, losses, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return losses.mean()


# Above is ignored_rows_counted. Variants, with what differs:
#
# sum_of_losses: A cross entropy that is summed, not averaged.
#   It shows always.
#   -         return losses.mean()
#   +         return losses.sum()
