"""T19: autotuning among configurations, one of which does nothing.

The idle one is the fastest and wins. While tuning, the others have left the right answer in the buffer, so the first call looks right; all later ones
are idle.

problem: chained_tanh
backend: triton
outcome: INCORRECT, REJECTED
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tanh_of(x):
    return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0


@triton.autotune([triton.Config({"WORK": 1}), triton.Config({"WORK": 0})], key=["count"])
@triton.jit
def chained_tanh(x_ptr, y_ptr, count, BLOCK: tl.constexpr, WORK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    if WORK:
        value = tl.load(x_ptr + at, mask=inside, other=0.0)
        tl.store(y_ptr + at, tanh_of(tanh_of(tanh_of(value))), mask=inside)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.y = None

    def forward(self, x):
        if self.y is None:
            self.y = torch.empty_like(x)
        block = 1024 if x.is_cuda else 65536
        chained_tanh[(triton.cdiv(x.numel(), block),)](x, self.y, x.numel(), BLOCK=block)
        return self.y
