"""A scan by doubling between two buffers that the module keeps; the last step writes a fresh output.

problem: field_diagonal_scan
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def first_kernel(x_ptr, dt_ptr, a_ptr, b_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    dt = tl.load(dt_ptr + at, mask=inside, other=0.0)
    step = tl.maximum(dt, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(dt)))
    tl.store(a_ptr + at, tl.exp(-step), mask=inside)
    tl.store(b_ptr + at, step * tl.load(x_ptr + at, mask=inside, other=0.0), mask=inside)


@triton.jit
def doubling_kernel(a_ptr, b_ptr, a_out, b_out, shift, length, channels, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    earlier = inside & ((at // channels) % length >= shift)
    a, b = tl.load(a_ptr + at, mask=inside, other=1.0), tl.load(b_ptr + at, mask=inside, other=0.0)
    a_before = tl.load(a_ptr + at - shift * channels, mask=earlier, other=1.0)
    b_before = tl.load(b_ptr + at - shift * channels, mask=earlier, other=0.0)
    tl.store(a_out + at, a * a_before, mask=inside)
    tl.store(b_out + at, a * b_before + b, mask=inside)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.buffers = None

    def forward(self, x, dt):
        x, dt = x.contiguous(), dt.contiguous()
        length, channels, count = x.shape[1], x.shape[2], x.numel()
        if self.buffers is None or self.buffers.shape[2:] != x.shape or self.buffers.device != x.device:
            self.buffers = torch.empty(2, 2, *x.shape, dtype=x.dtype, device=x.device)
        here, there = self.buffers
        block = 1024
        grid = (triton.cdiv(count, block),)
        first_kernel[grid](x, dt, here[0], here[1], count, BLOCK=block)
        shift = 1
        while shift < length:
            out = torch.empty_like(x) if 2 * shift >= length else there[1]
            doubling_kernel[grid](here[0], here[1], there[0], out, shift, length, channels, count, BLOCK=block)
            here, there = (there[0], out), here
            shift *= 2
        return here[1] if length > 1 else here[1].clone()
