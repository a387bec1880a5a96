"""S20: a kernel over one element of nothing, and torch for the work.

Counting launches finds one.

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
def touch(x_ptr):
    tl.store(x_ptr, tl.load(x_ptr) + 1)


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        one = torch.zeros(1, device=x.device)
        touch[(1,)](one)
        return F.gelu(x)
