"""S31: a sum into one place, without atomics.

Whoever writes last wins; right if there is only one block.

problem: total
backend: triton
outcome: INCORRECT
devices: cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < count, other=0.0)
    tl.store(y_ptr, tl.load(y_ptr) + tl.sum(x * x))


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        y = torch.zeros(1, device=x.device)
        add[(triton.cdiv(x.numel(), 4096),)](x, y, x.numel(), BLOCK=4096)
        return y
