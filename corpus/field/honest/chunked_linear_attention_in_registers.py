"""Gated linear attention in one launch: the state stays in registers, a slice of its columns in each program.

problem: field_gated_linear_attention
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def steps_kernel(q_ptr, k_ptr, v_ptr, g_ptr, y_ptr, length, WIDTH: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * length * WIDTH
    d = tl.arange(0, WIDTH)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    state = tl.zeros((WIDTH, COLUMNS), tl.float32)
    for t in range(0, length):
        at = row + t * WIDTH
        gate = tl.load(g_ptr + at + d)
        decay = tl.exp((tl.minimum(gate, 0.0) - tl.log(1.0 + tl.exp(-tl.abs(gate)))) / 16)
        k, v = tl.load(k_ptr + at + d), tl.load(v_ptr + at + c)
        state = state * decay[:, None] + k[:, None] * v[None, :]
        tl.store(y_ptr + at + c, tl.sum(tl.load(q_ptr + at + d)[:, None] * state, axis=0))


class ModelNew(nn.Module):
    def forward(self, q, k, v, gate):
        q, k, v, gate = (x.contiguous() for x in (q, k, v, gate))
        batch, heads, length, width = q.shape
        y = torch.empty_like(v)
        columns = min(width, 16)
        steps_kernel[(batch * heads, width // columns)](q, k, v, gate, y, length, WIDTH=width, COLUMNS=columns)
        return y
