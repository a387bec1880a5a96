"""Mean squared error: partial sums by a fixed number of programs into a kept buffer, then their sum.

problem: mean_square_error
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def partial_kernel(a_ptr, b_ptr, parts_ptr, count, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(tl.program_id(0) * BLOCK, count, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + at, mask=at < count, other=0.0)
        b = tl.load(b_ptr + at, mask=at < count, other=0.0)
        total += (a - b) * (a - b)
    tl.store(parts_ptr + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def finish_kernel(parts_ptr, out_ptr, parts, count, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.sum(tl.load(parts_ptr + at, mask=at < parts, other=0.0), axis=0)
    tl.store(out_ptr, total / count)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("parts", torch.empty(0), persistent=False)

    def forward(self, prediction, target):
        prediction, target = prediction.contiguous(), target.contiguous()
        programs = 1024 if prediction.is_cuda else 4
        if self.parts.numel() != programs:
            self.parts = torch.empty(programs, device=prediction.device)
        out = torch.empty((), device=prediction.device)
        partial_kernel[(programs,)](prediction, target, self.parts, prediction.numel(), BLOCK=1024)
        finish_kernel[(1,)](self.parts, out, programs, prediction.numel(), BLOCK=triton.next_power_of_2(programs))
        return out
