"""S21: an own kernel for the elementwise tail, the library for the product.

A label, not a failure: it is right, and its own kernel does a small part.

problem: linear_relu_gemm
backend: triton
outcome: CORRECT
devices: cuda
request: {"enable_profiling": true}
finding: S21
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tail(x_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.maximum(tl.load(x_ptr + at, at < count), 0.0) * 0.5, at < count)


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        features = arguments[0]
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        h = self.linear(x)
        tail[(triton.cdiv(h.numel(), 1024),)](h, h.numel(), BLOCK=1024)
        return h
