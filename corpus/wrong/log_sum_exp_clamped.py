"""A log-sum-exp that clamps its exponents at 60 instead of subtracting the maximum.

It shows only where an element is above 60.

problem: log_sum_exp_rows
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def log_sum_exp(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0)
    total = tl.sum(tl.where(inside, tl.exp(tl.minimum(x, 60.0)), 0.0), axis=0)
    tl.store(out_ptr + row, tl.log(total))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device)
        log_sum_exp[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
