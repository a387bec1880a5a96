"""Histogram by one atomic for each number, into int64 counts.

problem: int_histogram
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def histogram_kernel(x_ptr, counts_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x = tl.load(x_ptr + at, mask=inside, other=0)
    one = tl.full((BLOCK,), 1, tl.int64)
    tl.atomic_add(counts_ptr + x, one, mask=inside, sem="relaxed")


class ModelNew(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def forward(self, x):
        x = x.contiguous()
        counts = torch.zeros(self.bins, dtype=torch.int64, device=x.device)
        histogram_kernel[(triton.cdiv(x.numel(), 1024),)](x, counts, x.numel(), BLOCK=1024)
        return counts
