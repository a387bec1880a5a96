"""S23: a Triton product with TF32 as its input precision.

The default of tl.dot on this hardware, which a float32 problem does not allow.

problem: normal_matmul
backend: triton
outcome: INCORRECT
devices: cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, n, 32):
        inner = start + tl.arange(0, 32)
        a = tl.load(a_ptr + rows[:, None] * n + inner[None, :])
        b = tl.load(b_ptr + inner[:, None] * n + columns[None, :])
        total += tl.dot(a, b, input_precision="tf32")
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], total)


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, a, b):
        n = a.shape[0]
        c = torch.empty_like(a)
        product[(n // 64, n // 64)](a, b, c, n, BLOCK=64)
        return c
