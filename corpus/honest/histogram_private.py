"""Histogram of each program in registers, added to int32 counts of its own by atomics once, widened at the end.

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
def histogram_kernel(x_ptr, counts_ptr, count, BINS: tl.constexpr, BLOCK: tl.constexpr):
    total = tl.zeros((BINS,), tl.int32)
    for start in range(tl.program_id(0) * BLOCK, count, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < count, other=0)
        total += tl.histogram(x, BINS).to(tl.int32)
        # What lies beyond the end was counted as zeros.
        beyond = tl.maximum(start + BLOCK - count, 0)
        total -= tl.where(tl.arange(0, BINS) == 0, beyond, 0)
    tl.atomic_add(counts_ptr + tl.arange(0, BINS), total, sem="relaxed")


class ModelNew(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def forward(self, x):
        x = x.contiguous()
        size = triton.next_power_of_2(self.bins)
        counts = torch.zeros(size, dtype=torch.int32, device=x.device)
        programs = 1024 if x.is_cuda else 2
        histogram_kernel[(programs,)](x, counts, x.numel(), BINS=size, BLOCK=1024)
        return counts[: self.bins].long()
