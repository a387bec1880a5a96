"""Linear layer and ReLU in half precision, products summed in float32.

problem: linear_relu_half
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def linear_relu_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, rows, hidden, features, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, features, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(
            x_ptr + m[:, None] * features + k[None, :], mask=(m < rows)[:, None] & (k < features)[None, :], other=0.0
        )
        w = tl.load(
            w_ptr + n[None, :] * features + k[:, None], mask=(n < hidden)[None, :] & (k < features)[:, None], other=0.0
        )
        acc = tl.dot(x, w, acc)
    acc += tl.load(b_ptr + n, mask=n < hidden, other=0.0).to(tl.float32)[None, :]
    y = tl.maximum(acc, 0.0).to(tl.float16)
    tl.store(y_ptr + m[:, None] * hidden + n[None, :], y, mask=(m < rows)[:, None] & (n < hidden)[None, :])


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.linear = nn.Linear(features, hidden).half()

    def forward(self, x):
        x = x.contiguous()
        rows, features = x.shape
        hidden = self.linear.out_features
        y = torch.empty(rows, hidden, dtype=x.dtype, device=x.device)
        bm, bn, bk = (128, 128, 64) if rows >= 512 else (32, 32, 32)
        grid = (triton.cdiv(rows, bm), triton.cdiv(hidden, bn))
        linear_relu_kernel[grid](
            x, self.linear.weight, self.linear.bias, y, rows, hidden, features, BM=bm, BN=bn, BK=bk, num_warps=8
        )
        return y
