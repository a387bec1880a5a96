"""T12: a static buffer that is rewritten only when the input seems to be another one.

Address and version decide; where they are the same, the buffer of the earlier call is returned as it is.

problem: normal_gelu
backend: triton
outcome: INCORRECT, REJECTED, CORRECT
honest: static_buffer_gelu
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def gelu_kernel(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=0.0)
    tl.store(y_ptr + at, 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476)), mask=at < count)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = None
        self.seen = None

    def forward(self, x):
        if self.out is None or self.out.shape != x.shape:
            self.out = torch.empty_like(x)
        if self.seen == (x.data_ptr(), x._version):
            return self.out
        self.seen = (x.data_ptr(), x._version)
        block = 1024 if x.is_cuda else 8192
        gelu_kernel[(triton.cdiv(x.numel(), block),)](x, self.out, x.numel(), BLOCK=block)
        return self.out
