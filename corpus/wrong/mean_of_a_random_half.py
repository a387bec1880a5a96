"""A mean over a random half of the elements: right in expectation only.

It shows in every row that is not constant.

problem: mean_kept_dimension
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mean_of_row(x_ptr, out_ptr, columns, seed, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0)
    chosen = inside & (tl.rand(seed, row * columns + at) < 0.5)
    mean = tl.sum(tl.where(chosen, x, 0.0), axis=0) / tl.sum(tl.where(chosen, 1.0, 0.0), axis=0)
    tl.store(out_ptr + row, mean)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], 1, device=x.device)
        mean_of_row[(x.shape[0],)](x, out, x.shape[1], 7, BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
