"""Correct: a fixed number of programs, each of which strides over the whole tensor."""

import torch
import triton
import triton.language as tl
from torch import nn

PROGRAMS = 16


@triton.jit
def relu_kernel(x_ptr, out_ptr, count, STRIDE: tl.constexpr, BLOCK: tl.constexpr):
    begin = tl.program_id(0) * BLOCK
    for start in range(begin, count, STRIDE):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < count
        x = tl.load(x_ptr + offsets, mask=mask)
        tl.store(out_ptr + offsets, tl.where(x > 0, x, 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        relu_kernel[(PROGRAMS,)](x, out, x.numel(), STRIDE=PROGRAMS * 8192, BLOCK=8192, num_warps=8)
        return out
