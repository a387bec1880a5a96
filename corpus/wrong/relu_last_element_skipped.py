"""A ReLU whose mask is one short: the last element stays as it was allocated.

It shows in one element.

problem: relu_randn
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count - 1
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    y = tl.maximum(x, 0.0)
    tl.store(out_ptr + at, y, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x) - 1.0
        relu[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
