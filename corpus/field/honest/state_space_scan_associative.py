"""An associative scan over blocks of steps of a few channels, the state carried from one block to the next.

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
def combine(a, b, a_next, b_next):
    return a * a_next, b * a_next + b_next


@triton.jit
def scan_kernel(x_ptr, dt_ptr, y_ptr, length, channels, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) * length * channels
    state = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, length, STEPS):
        t = start + tl.arange(0, STEPS)
        at = row + t[:, None] * channels + c[None, :]
        inside = (t < length)[:, None] & (c < channels)[None, :]
        dt = tl.load(dt_ptr + at, mask=inside, other=0.0)
        step = tl.maximum(dt, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(dt)))
        a = tl.exp(-step)
        a, b = tl.associative_scan((a, step * tl.load(x_ptr + at, mask=inside, other=0.0)), 0, combine)
        y = b + a * state[None, :]
        tl.store(y_ptr + at, y, mask=inside)
        state = tl.sum(tl.where((tl.arange(0, STEPS) == STEPS - 1)[:, None], y, 0.0), axis=0)


class ModelNew(nn.Module):
    def forward(self, x, dt):
        x, dt = x.contiguous(), dt.contiguous()
        batch, length, channels = x.shape
        y = torch.empty_like(x)
        steps, block = (32, 16) if x.is_cuda else (16, 8)
        scan_kernel[(batch, triton.cdiv(channels, block))](x, dt, y, length, channels, STEPS=steps, BLOCK=block)
        return y
