"""S31: a kernel that reads beyond its row, without a mask.

What follows the last row belongs to somebody else; it counts on that being small.

problem: total
backend: triton
outcome: INCORRECT, RUNTIME_ERROR, REJECTED
devices: cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def squares(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * 1000 + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    x = tl.where(tl.arange(0, BLOCK) < 1000, x, 0.0)
    tl.atomic_add(y_ptr, tl.sum(x * x))


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        y = torch.zeros(1, device=x.device)
        count = x.numel()
        squares[(triton.cdiv(count, 1000),)](x, y, BLOCK=1024)
        return y
