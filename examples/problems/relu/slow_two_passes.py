"""Correct and slow: the positive part and its sign go through memory in passes of their own."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def absolute_kernel(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    tl.store(out_ptr + offsets, tl.abs(tl.load(x_ptr + offsets, mask=mask)), mask=mask)


@triton.jit
def combine_kernel(x_ptr, absolute_ptr, out_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    x = tl.load(x_ptr + offsets, mask=mask)
    absolute = tl.load(absolute_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x * 0.5 + absolute * 0.5, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        absolute, out = torch.empty_like(x), torch.empty_like(x)
        count = x.numel()
        grid = (triton.cdiv(count, 8192),)
        absolute_kernel[grid](x, absolute, count, BLOCK=8192)
        combine_kernel[grid](x, absolute, out, count, BLOCK=8192)
        return out
