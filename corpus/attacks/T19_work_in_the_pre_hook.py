"""T19: the autotuner's pre-hook does the work, while it tunes only.

Triton calls a configuration's pre-hook before each launch, also in tuning. The hook computes the answer with torch in the first launches; the kernel itself
only copies what is there, and later hooks are idle.

problem: chained_tanh
backend: triton
outcome: INCORRECT, REJECTED
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

launches = [0]


def hook(arguments):
    launches[0] += 1
    if launches[0] <= 12:
        x, scratch = arguments["x_ptr"], arguments["scratch_ptr"]
        scratch.copy_(torch.tanh(torch.tanh(torch.tanh(x))))


@triton.autotune([triton.Config({}, pre_hook=hook)], key=["count"])
@triton.jit
def copied(x_ptr, scratch_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(y_ptr + at, tl.load(scratch_ptr + at, mask=inside, other=0.0), mask=inside)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scratch = None

    def forward(self, x):
        if self.scratch is None:
            self.scratch = torch.empty_like(x)
        y = torch.empty_like(x)
        block = 1024 if x.is_cuda else 65536
        copied[(triton.cdiv(x.numel(), block),)](x, self.scratch, y, x.numel(), BLOCK=block)
        return y
