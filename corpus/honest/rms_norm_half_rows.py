"""RMS normalisation in half precision, sums in float32, a row for each program.

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
def rms_norm_kernel(x_ptr, w_ptr, y_ptr, features, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * features
    at = tl.arange(0, BLOCK)
    inside = at < features
    x = tl.load(x_ptr + row + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / features + eps)
    w = tl.load(w_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + row + at, (x * scale * w).to(tl.float16), mask=inside)


class RMSNorm(nn.Module):
    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        features = x.shape[-1]
        y = torch.empty_like(x)
        block = triton.next_power_of_2(features)
        rms_norm_kernel[(x.numel() // features,)](x, self.weight, y, features, self.eps, BLOCK=block, num_warps=8)
        return y


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = RMSNorm(features).half()

    def forward(self, x):
        return self.norm(x)
