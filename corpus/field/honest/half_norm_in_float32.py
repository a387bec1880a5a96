"""RMS norm of half-precision rows: widened when loaded, summed and scaled in float32, rounded as the reference rounds.

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
def norm_kernel(x_ptr, w_ptr, y_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row + at, mask=inside, other=0.0).to(tl.float32)
    x *= tl.rsqrt(tl.sum(x * x, axis=0) / columns + eps)
    weight = tl.load(w_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + row + at, (x.to(tl.float16).to(tl.float32) * weight).to(tl.float16), mask=inside)


class RMSNorm(nn.Module):
    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features, dtype=torch.float16))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        columns = x.shape[-1]
        block = triton.next_power_of_2(columns)
        norm_kernel[(x.numel() // columns,)](x, self.weight, y, columns, self.eps, BLOCK=block, num_warps=8)
        return y


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = RMSNorm(features)

    def forward(self, x):
        return self.norm(x)
