"""A tensor over the largest magnitude of the first one that it saw.

The first call is right; later ones use a stale number.

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
    def __init__(self):
        super().__init__()
        self.largest = None

    def forward(self, x):
        if self.largest is None:
            self.largest = x.abs().max()
        out = torch.empty_like(x)
        scale_down[(triton.cdiv(x.numel(), 1024),)](x, self.largest, out, x.numel(), BLOCK=1024)
        return out
