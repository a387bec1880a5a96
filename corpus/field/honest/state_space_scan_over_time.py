"""A program for each block of channels goes through time with the state in registers.

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
def scan_kernel(x_ptr, dt_ptr, y_ptr, length, channels, BLOCK: tl.constexpr):
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = c < channels
    row = tl.program_id(0).to(tl.int64) * length * channels
    state = tl.zeros((BLOCK,), tl.float32)
    for t in range(0, length):
        at = row + t * channels + c
        dt = tl.load(dt_ptr + at, mask=inside, other=0.0)
        step = tl.maximum(dt, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(dt)))
        state = tl.exp(-step) * state + step * tl.load(x_ptr + at, mask=inside, other=0.0)
        tl.store(y_ptr + at, state, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, dt):
        x, dt = x.contiguous(), dt.contiguous()
        batch, length, channels = x.shape
        y = torch.empty_like(x)
        block = 64 if x.is_cuda else 32
        scan_kernel[(batch, triton.cdiv(channels, block))](x, dt, y, length, channels, BLOCK=block, num_warps=2)
        return y
