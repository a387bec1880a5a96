"""An RMSNorm that divides by its block, not by the length of the row.

It shows in every row, as long as the row is not a power of two long.

problem: rms_norm_narrow
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rms_norm_row(x_ptr, weight_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0)
    total = tl.sum(x * x, axis=0)
    weight = tl.load(weight_ptr + at, mask=inside, other=0.0)
    tl.store(out_ptr + row * columns + at, x * tl.rsqrt(total / BLOCK + 1e-5) * weight, mask=at < columns)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.RMSNorm(columns, eps=1e-5)

    def forward(self, x):
        out = torch.empty_like(x)
        rms_norm_row[(x.shape[0],)](
            x,
            self.norm.weight,
            out,
            x.shape[1],
            BLOCK=triton.next_power_of_2(x.shape[1]),
        )
        return out


# Above is rms_norm_block_as_length. Variants, with what differs:
#
# rms_norm_epsilon_outside: An RMSNorm whose epsilon is added to the root instead of the mean square.
#   It shows only in rows of small values.
#   -     tl.store(out_ptr + row * columns + at, x * tl.rsqrt(total / BLOCK + 1e-5) * weight, mask=at < columns)
#   +     tl.store(out_ptr + row * columns + at, x / (tl.sqrt(total / columns) + 1e-5) * weight, mask=at < columns)
#
# rms_norm_forgets_weight: An RMSNorm without its weight.
#   It shows only where the weight is not one, and it starts at one.
#   -     weight = tl.load(weight_ptr + at, mask=inside, other=0.0)
#   -     tl.store(out_ptr + row * columns + at, x * tl.rsqrt(total / BLOCK + 1e-5) * weight, mask=at < columns)
#   +     tl.load(weight_ptr + at, mask=inside, other=0.0)
#   +     tl.store(out_ptr + row * columns + at, x * tl.rsqrt(total / columns + 1e-5), mask=at < columns)
