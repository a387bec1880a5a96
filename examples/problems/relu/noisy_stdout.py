"""Correct and noisy: 8 MB of output while it is imported, and more in each call."""

import sys

import torch
import triton
import triton.language as tl
from torch import nn

for line in range(100_000):
    sys.stdout.write(
        f"autotuning configuration {line:06d}: nothing better was found so far, going on with the search\n"
    )


@triton.jit
def relu_kernel(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("launching " * 100, file=sys.stderr)
        out = torch.empty_like(x)
        count = x.numel()
        relu_kernel[(triton.cdiv(count, 16384),)](x, out, count, BLOCK=16384)
        return out
