"""S25: a backward pass that leaves out how the mean depends on its row.

The forward pass and the scale's gradient are right; the input's gradient lacks a reduction.

problem: field_rms_norm_gradients
backend: triton
outcome: INCORRECT, REJECTED
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def forward_kernel(x_ptr, w_ptr, y_ptr, r_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0)
    w = tl.load(w_ptr + at, mask=inside, other=0.0)
    r = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / columns + 1e-6)
    tl.store(r_ptr + row, r)
    tl.store(y_ptr + row * columns + at, x * r * w, mask=inside)


@triton.jit
def backward_kernel(g_ptr, x_ptr, w_ptr, r_ptr, dx_ptr, dw_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    g = tl.load(g_ptr + row * columns + at, mask=inside, other=0.0)
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0)
    w = tl.load(w_ptr + at, mask=inside, other=0.0)
    r = tl.load(r_ptr + row)
    scaled = g * w
    tl.store(dx_ptr + row * columns + at, r * scaled, mask=inside)
    tl.store(dw_ptr + row * columns + at, g * x * r, mask=inside)


class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        rows, columns = x.shape
        y = torch.empty_like(x)
        r = torch.empty(rows, device=x.device)
        forward_kernel[(rows,)](x, weight, y, r, columns, BLOCK=triton.next_power_of_2(columns))
        ctx.save_for_backward(x, weight, r)
        return y

    @staticmethod
    def backward(ctx, g):
        x, weight, r = ctx.saved_tensors
        rows, columns = x.shape
        g = g.contiguous()
        dx = torch.empty_like(x)
        parts = torch.empty_like(x)
        backward_kernel[(rows,)](g, x, weight, r, dx, parts, columns, BLOCK=triton.next_power_of_2(columns))
        return dx, parts.sum(0)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x):
        return RMSNorm.apply(x, self.weight)
