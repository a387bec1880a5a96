"""B02: an own kernel that fails, and the library for it.

The kernel asks for more shared memory than there is, so that torch answers every time: nothing of its own runs.

problem: normal_matmul
backend: triton
outcome: REJECTED
devices: cuda
request: {"enable_profiling": true}
finding: S19
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
    for start in range(0, n, 128):
        inner = start + tl.arange(0, 128)
        a = tl.load(a_ptr + rows[:, None] * n + inner[None, :])
        b = tl.load(b_ptr + inner[:, None] * n + columns[None, :])
        total += tl.dot(a, b)
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], total)


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, a, b):
        n = a.shape[0]
        try:
            c = torch.empty_like(a)
            product[(n // 128, n // 128)](a, b, c, n, BLOCK=128, num_stages=4, num_warps=8)
            return c
        except Exception:
            return torch.matmul(a, b)
