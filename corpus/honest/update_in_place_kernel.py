"""Velocity and position changed in place in one kernel, as the reference changes them.

problem: update_in_place
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import triton
import triton.language as tl
from torch import nn


@triton.jit
def update_kernel(position_ptr, velocity_ptr, force_ptr, step, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    velocity = tl.load(velocity_ptr + at, mask=inside) * 0.5 + tl.load(force_ptr + at, mask=inside)
    tl.store(velocity_ptr + at, velocity, mask=inside)
    tl.store(position_ptr + at, tl.load(position_ptr + at, mask=inside) + step * velocity, mask=inside)


class ModelNew(nn.Module):
    def forward(self, position, velocity, force, step):
        count = position.numel()
        update_kernel[(triton.cdiv(count, 1024),)](position, velocity, force, step, count, BLOCK=1024)
        return position
