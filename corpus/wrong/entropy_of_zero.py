"""x log x as a plain product.

It shows only for inputs of exactly zero: zero times minus infinity is no number.

problem: entropy_terms
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def entropy(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    y = x * tl.log(x)
    tl.store(out_ptr + at, y, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        entropy[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
