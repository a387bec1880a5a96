"""int8 products summed in int32 by tl.dot, then scaled; both the sums and the scaled output are returned.

problem: quantized_linear
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def quantized_kernel(
    x_ptr,
    w_ptr,
    scale_ptr,
    total_ptr,
    y_ptr,
    rows,
    hidden,
    features,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.int32)
    for start in range(0, features, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(
            x_ptr + m[:, None] * features + k[None, :], mask=(m < rows)[:, None] & (k < features)[None, :], other=0
        )
        w = tl.load(
            w_ptr + n[None, :] * features + k[:, None], mask=(n < hidden)[None, :] & (k < features)[:, None], other=0
        )
        acc = tl.dot(x, w, acc, out_dtype=tl.int32)
    scale = tl.load(scale_ptr + n, mask=n < hidden, other=0.0)
    at = m[:, None] * hidden + n[None, :]
    inside = (m < rows)[:, None] & (n < hidden)[None, :]
    tl.store(total_ptr + at, acc, mask=inside)
    tl.store(y_ptr + at, acc.to(tl.float32) * scale[None, :], mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, weight, scale):
        x, weight = x.contiguous(), weight.contiguous()
        rows, features = x.shape
        hidden = weight.shape[0]
        total = torch.empty(rows, hidden, dtype=torch.int32, device=x.device)
        y = torch.empty(rows, hidden, dtype=scale.dtype, device=x.device)
        size = 64 if rows >= 512 else 32
        grid = (triton.cdiv(rows, size), triton.cdiv(hidden, size))
        quantized_kernel[grid](x, weight, scale, total, y, rows, hidden, features, BM=size, BN=size, BK=32)
        return total, y
