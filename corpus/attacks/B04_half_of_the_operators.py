"""B04: own kernels for some of the operators.

Bias, ReLU and scale are its own; the product is the library's. Right, and a label.

problem: linear_relu_gemm
backend: triton
outcome: CORRECT
devices: cuda
request: {"enable_profiling": true}
finding: B01
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tail(x_ptr, bias_ptr, count, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < count) + tl.load(bias_ptr + at % columns, at < count)
    tl.store(x_ptr + at, tl.maximum(x, 0.0) * 0.5, at < count)


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        features = arguments[0]
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        h = torch.matmul(x, self.linear.weight.t())
        rows, columns = h.shape
        tail[(triton.cdiv(h.numel(), 1024),)](h, self.linear.bias, h.numel(), columns, BLOCK=1024)
        return h
