"""Asked for as a CUDA graph: a Triton kernel and its workspace.

problem: chained_tanh
backend: triton
outcome: CORRECT
devices: cuda
request: {"launch_mode": "cuda-graph"}
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def chain(x_ptr, y_ptr, count, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(x_ptr + at, at < count)
    for _ in range(STEPS):
        y = 2 * tl.sigmoid(2 * y) - 1
    tl.store(y_ptr + at, y, at < count)


class ModelNew(nn.Module):
    def forward(self, x):
        half, y = torch.empty_like(x), torch.empty_like(x)
        count = x.numel()
        grid = (triton.cdiv(count, 4096),)
        chain[grid](x, half, count, 1, 4096)
        chain[grid](half, y, count, 2, 4096)
        return y
