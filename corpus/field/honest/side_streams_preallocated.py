"""Two Triton kernels on halves of the rows, one of them on a side stream, into one output that the caller's stream made.

problem: rows_softmax
backend: triton
outcome: CORRECT
devices: cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row + at, e / tl.sum(e, axis=0), mask=at < columns)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = None

    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        here = torch.cuda.current_stream(x.device)
        if self.side is None:
            self.side = torch.cuda.Stream(x.device)
        y = torch.empty_like(x)
        half, block = rows // 2, triton.next_power_of_2(columns)
        self.side.wait_stream(here)
        with torch.cuda.stream(self.side):
            softmax_kernel[(rows - half,)](x[half:], y[half:], columns, BLOCK=block, num_warps=8)
        if half:
            softmax_kernel[(half,)](x[:half], y[:half], columns, BLOCK=block, num_warps=8)
        here.wait_stream(self.side)
        x.record_stream(self.side)
        y.record_stream(self.side)
        return y
