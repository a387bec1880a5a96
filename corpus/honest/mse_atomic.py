"""Mean squared error: every program adds its part by one atomic.

problem: mean_square_error
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def mse_kernel(a_ptr, b_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(a_ptr + at, mask=at < count, other=0.0)
    b = tl.load(b_ptr + at, mask=at < count, other=0.0)
    tl.atomic_add(out_ptr, tl.sum((a - b) * (a - b), axis=0) / count)


class ModelNew(nn.Module):
    def forward(self, prediction, target):
        prediction, target = prediction.contiguous(), target.contiguous()
        out = torch.zeros((), device=prediction.device)
        count = prediction.numel()
        mse_kernel[(triton.cdiv(count, 4096),)](prediction, target, out, count, BLOCK=4096, num_warps=8)
        return out
