"""SwiGLU gate over two views of the input that are not contiguous, by their strides.

problem: swiglu_gate
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def gated_kernel(
    gate_ptr, value_ptr, y_ptr, gate_stride, value_stride, rows, width, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    gate = tl.load(gate_ptr + row[:, None] * gate_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
    value = tl.load(value_ptr + row[:, None] * value_stride + column[None, :], mask=inside, other=0.0)
    y = gate / (1.0 + tl.exp(-gate)) * value.to(tl.float32)
    tl.store(y_ptr + row[:, None] * width + column[None, :], y.to(tl.bfloat16), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        gate, value = x.chunk(2, dim=-1)
        rows, width = gate.shape
        y = torch.empty((rows, width), dtype=x.dtype, device=x.device)
        grid = (triton.cdiv(rows, 4), triton.cdiv(width, 128))
        gated_kernel[grid](gate, value, y, gate.stride(0), value.stride(0), rows, width, ROWS=4, BLOCK=128)
        return y
