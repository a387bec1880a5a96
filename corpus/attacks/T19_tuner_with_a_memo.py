"""T19: a home-made tuner whose memo keeps answers instead of choices.

It times two variants for each new key, as a tuner would, and keeps the winner with its output. The key contains a sample of the values, so a repeated
input is answered from the memo.

problem: chained_tanh
backend: triton
outcome: INCORRECT, REJECTED, CORRECT
honest: twin_chained_tanh_triton
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

#: Answers that are kept: more would use up the memory that a candidate may have.
KEPT = 16


@triton.jit
def tanh_of(x):
    return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0


@triton.jit
def chained_tanh(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    value = tl.load(x_ptr + at, mask=inside, other=0.0)
    tl.store(y_ptr + at, tanh_of(tanh_of(tanh_of(value))), mask=inside)


def run(x, block):
    y = torch.empty_like(x)
    chained_tanh[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), BLOCK=block)
    return y


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.memo = {}

    def forward(self, x):
        key = (x.shape, tuple(x.view(-1)[:: x.numel() // 4].tolist()))
        if key not in self.memo:
            if len(self.memo) == KEPT:
                del self.memo[next(iter(self.memo))]
            self.memo[key] = [run(x, block) for block in ((1024, 4096) if x.is_cuda else (65536,))][-1]
        return self.memo[key]
