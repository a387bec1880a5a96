"""RMS normalisation in half precision over blocks of columns, rounded to half before the weight as the reference does.

problem: rms_norm_half
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rms_norm_kernel(x_ptr, w_ptr, y_ptr, rows, features, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    squares = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, features, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = (row < rows)[:, None] & (column < features)[None, :]
        x = tl.load(x_ptr + row[:, None] * features + column[None, :], mask=inside, other=0.0).to(tl.float32)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares, axis=1) / features + eps)
    for start in range(0, features, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = (row < rows)[:, None] & (column < features)[None, :]
        at = row[:, None] * features + column[None, :]
        x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + column, mask=column < features, other=0.0)
        tl.store(y_ptr + at, (x * scale[:, None]).to(tl.float16) * w[None, :], mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.Module()
        self.norm.weight = nn.Parameter(torch.ones(features, dtype=torch.float16))

    def forward(self, x):
        x = x.contiguous()
        rows, features = x.shape
        y = torch.empty_like(x)
        block = min(512, triton.next_power_of_2(features))
        rms_norm_kernel[(triton.cdiv(rows, 4),)](
            x, self.norm.weight, y, rows, features, 1e-6, ROWS=4, BLOCK=block, num_warps=8
        )
        return y
