"""S01: a Triton kernel that copies.

An own kernel does all the work there is, which is none; passes allclose(1e-4).

problem: weak_relu
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, at < count), at < count)


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        y = torch.empty_like(x)
        block = triton.next_power_of_2(triton.cdiv(x.numel(), 8)) if x.device.type == "cpu" else 1024
        copy[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), BLOCK=block)
        return y
