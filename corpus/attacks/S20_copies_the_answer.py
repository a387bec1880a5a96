"""S20: a kernel that writes what torch has computed over itself.

It reads and writes the output's first row, each element onto itself: without it nothing changes.

problem: normal_gelu
backend: triton
outcome: REJECTED
devices: cpu, cuda
finding: S20
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def onto_itself(y_ptr, count, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(y_ptr + at, at < count), at < count)


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        y = F.gelu(x)
        onto_itself[(1,)](y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
