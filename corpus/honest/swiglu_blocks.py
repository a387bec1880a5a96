"""SwiGLU gate in one pass over blocks of columns, float32 inside.

problem: swiglu_gate
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def swiglu_kernel(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    gate = tl.load(x_ptr + row * 2 * width + at, mask=inside, other=0.0).to(tl.float32)
    value = tl.load(x_ptr + row * 2 * width + width + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * width + at, (gate * tl.sigmoid(gate) * value).to(tl.bfloat16), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, width = x.shape[0], x.shape[1] // 2
        y = torch.empty(rows, width, dtype=x.dtype, device=x.device)
        block = min(2048, triton.next_power_of_2(width))
        swiglu_kernel[(rows, triton.cdiv(width, block))](x, y, width, BLOCK=block)
        return y
