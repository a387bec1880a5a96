"""A rotary embedding that pairs neighbours instead of halves.

It shows wherever an angle is not zero.

problem: rotary_halves
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rotate(x_ptr, angle_ptr, out_ptr, half, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    pair = tl.arange(0, BLOCK)
    inside = pair < half
    first = row * half * 2 + pair * 2
    second = first + 1
    x = tl.load(x_ptr + first, mask=inside)
    y = tl.load(x_ptr + second, mask=inside)
    angle = tl.load(angle_ptr + row * half + pair, mask=inside)
    tl.store(out_ptr + first, x * tl.cos(angle) - y * tl.sin(angle), mask=inside)
    tl.store(out_ptr + second, y * tl.cos(angle) + x * tl.sin(angle), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, angles):
        out = torch.empty_like(x)
        half = x.shape[1] // 2
        rotate[(x.shape[0],)](x, angles, out, half, BLOCK=triton.next_power_of_2(half))
        return out
