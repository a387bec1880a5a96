"""Softmax by as many programs as the device runs at once, each of which walks over its share of the rows.

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
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * columns + at, mask=inside, other=-float("inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_ptr + row * columns + at, e / tl.sum(e, axis=0), mask=inside)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.programs = None

    def forward(self, x):
        x = x.contiguous()
        if self.programs is None:
            processors = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 1
            self.programs = 4 * processors
        rows, columns = x.shape
        y = torch.empty_like(x)
        grid = (min(rows, self.programs),)
        softmax_kernel[grid](x, y, rows, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8)
        return y
