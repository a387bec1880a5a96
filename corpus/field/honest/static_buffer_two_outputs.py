"""Residual and RMS norm in one kernel, whose two outputs live in buffers registered in the module.

The buffers are not persistent; they grow with the largest batch, and each call returns views of their first rows, all
rewritten.

problem: field_add_rms_norm
backend: triton
outcome: CORRECT
devices: cpu, cuda
finding: S30
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def add_norm_kernel(x_ptr, r_ptr, w_ptr, y_ptr, t_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    inside = at < columns
    total = tl.load(x_ptr + row + at, mask=inside, other=0.0) + tl.load(r_ptr + row + at, mask=inside, other=0.0)
    scale = 1.0 / tl.sqrt(tl.sum(total * total, axis=0) / columns + 1e-6)
    weight = tl.load(w_ptr + at, mask=inside, other=0.0)
    tl.store(t_ptr + row + at, total, mask=inside)
    tl.store(y_ptr + row + at, total * scale * weight, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.register_buffer("space", torch.empty(0), persistent=False)

    def forward(self, x, residual):
        rows, columns = x.shape
        if self.space.numel() < 2 * x.numel() or self.space.dtype != x.dtype or self.space.device != x.device:
            self.space = torch.empty(2 * x.numel(), dtype=x.dtype, device=x.device)
        normed = self.space[: x.numel()].view(rows, columns)
        total = self.space[x.numel() : 2 * x.numel()].view(rows, columns)
        block = triton.next_power_of_2(columns)
        add_norm_kernel[(rows,)](
            x.contiguous(), residual.contiguous(), self.weight, normed, total, columns, BLOCK=block, num_warps=8
        )
        return normed, total
