"""A tensor over its largest element, not its largest magnitude.

It shows where the largest magnitude is negative: nearly always, as the mean of the inputs is.

problem: scale_by_maximum
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_down(x_ptr, largest_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    y = x / tl.load(largest_ptr)
    tl.store(out_ptr + at, y, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        largest = x.max()
        out = torch.empty_like(x)
        scale_down[(triton.cdiv(x.numel(), 1024),)](x, largest, out, x.numel(), BLOCK=1024)
        return out
