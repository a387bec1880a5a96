"""Linear layer, bias and GELU in one kernel, IEEE float32 products.

problem: linear_gelu
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def gelu(x):
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return x * tl.sigmoid(2.0 * u)  # 0.5 * (1 + tanh(u)) is the logistic function of 2 u


@triton.jit
def linear_gelu_kernel(
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
        acc = tl.dot(x, w, acc, input_precision="ieee")
    acc += tl.load(b_ptr + n, mask=n < hidden, other=0.0)[None, :]
    tl.store(y_ptr + m[:, None] * hidden + n[None, :], gelu(acc), mask=(m < rows)[:, None] & (n < hidden)[None, :])


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.linear = nn.Linear(features, hidden)

    def forward(self, x):
        x = x.contiguous()
        rows, features = x.shape
        hidden = self.linear.weight.shape[0]
        y = torch.empty(rows, hidden, device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(rows, 32), triton.cdiv(hidden, 32))
        linear_gelu_kernel[grid](
            x, self.linear.weight, self.linear.bias, y, rows, hidden, features, BM=32, BN=32, BK=32
        )
        return y
