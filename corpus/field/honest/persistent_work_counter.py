"""Persistent programs that draw their next rows from a counter on the device, which every call sets to zero first.

problem: field_add_rms_norm
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def add_norm_kernel(x_ptr, r_ptr, w_ptr, y_ptr, t_ptr, next_ptr, rows, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < columns
    weight = tl.load(w_ptr + at, mask=inside, other=0.0)
    row = tl.atomic_add(next_ptr, 1)
    while row < rows:
        start = row.to(tl.int64) * columns
        x = tl.load(x_ptr + start + at, mask=inside, other=0.0)
        total = x + tl.load(r_ptr + start + at, mask=inside, other=0.0)
        scale = 1.0 / tl.sqrt(tl.sum(total * total, axis=0) / columns + 1e-6)
        tl.store(t_ptr + start + at, total, mask=inside)
        tl.store(y_ptr + start + at, total * scale * weight, mask=inside)
        row = tl.atomic_add(next_ptr, 1)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.counter = None

    def forward(self, x, residual):
        x, residual = x.contiguous(), residual.contiguous()
        rows, columns = x.shape
        if self.counter is None or self.counter.device != x.device:
            self.counter = torch.empty(1, dtype=torch.int32, device=x.device)
        self.counter.zero_()
        normed, total = torch.empty_like(x), torch.empty_like(x)
        programs = 4 * torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 2
        block = triton.next_power_of_2(columns)
        add_norm_kernel[(programs,)](
            x, residual, self.weight, normed, total, self.counter, rows, columns, BLOCK=block, num_warps=8
        )
        return normed, total
