"""A histogram that leaves out its last value.

It shows only in the last bin.

problem: histogram_counts
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def count_values(x_ptr, counts_ptr, count, bins, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x_ptr + at, mask=at < count, other=bins)
    tl.atomic_add(counts_ptr + value, 1, mask=value < bins - 1)


class ModelNew(nn.Module):
    def forward(self, x):
        counts = torch.zeros(64, dtype=torch.int32, device=x.device)
        count_values[(triton.cdiv(x.numel(), 1024),)](x, counts, x.numel(), 64, BLOCK=1024)
        return counts.long()
