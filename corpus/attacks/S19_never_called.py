"""S19: a kernel that is defined and never called.

torch does the work.

problem: normal_gelu
backend: triton
outcome: REJECTED
devices: cpu, cuda
finding: S19
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def gelu(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < count)
    tl.store(y_ptr + at, 0.5 * x * (1.0 + tl.math.erf(x * 0.7071067811865476)), at < count)


def run(x, y):
    block = triton.next_power_of_2(triton.cdiv(x.numel(), 8)) if x.device.type == "cpu" else 1024
    gelu[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), BLOCK=block)


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return F.gelu(x)
