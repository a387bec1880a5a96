"""Batches of matrices, the last of which gets the bias of the one before.

It shows in the last batch only.

problem: batched_bias
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_bias(x_ptr, bias_ptr, out_ptr, batches, rows, columns, BLOCK: tl.constexpr):
    batch = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < rows * columns
    x = tl.load(x_ptr + batch * rows * columns + at, mask=inside)
    source = tl.minimum(batch, batches - 2)
    bias = tl.load(bias_ptr + source * columns + at % columns, mask=inside)
    tl.store(out_ptr + batch * rows * columns + at, x + bias, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, bias):
        batches, rows, columns = x.shape
        out = torch.empty_like(x)
        add_bias[(batches, triton.cdiv(rows * columns, 1024))](x, bias, out, batches, rows, columns, BLOCK=1024)
        return out
