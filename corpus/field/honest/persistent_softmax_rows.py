"""A fixed number of programs, each of which walks over the rows in strides.

problem: rows_softmax
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=2):
        start = tl.cast(row, tl.int64) * columns
        x = tl.load(x_ptr + start + at, mask=inside, other=-float("inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_ptr + start + at, e / tl.sum(e, axis=0), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        programs = 2 * torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 4
        softmax_kernel[(min(programs, rows),)](x, y, rows, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8)
        return y
