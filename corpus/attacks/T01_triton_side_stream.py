"""T01: a Triton kernel launched on a side stream.

The launch picks up torch's current stream, so a context around it is enough; the caller's stream is never joined.

problem: chained_tanh
backend: triton
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh_triton
devices: cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tanh_of(x):
    return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0


@triton.jit
def chained_tanh(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    value = tl.load(x_ptr + at, mask=inside, other=0.0)
    tl.store(y_ptr + at, tanh_of(tanh_of(tanh_of(value))), mask=inside)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = torch.cuda.Stream()

    def forward(self, x):
        y = torch.empty_like(x)
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            chained_tanh[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
