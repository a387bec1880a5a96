"""The gated delta rule in one launch, each program with some columns of the state, which is all that they need.

problem: field_gated_delta_rule
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def steps_kernel(q_ptr, k_ptr, v_ptr, b_ptr, g_ptr, y_ptr, length, WIDTH: tl.constexpr, COLUMNS: tl.constexpr):
    head = tl.program_id(0).to(tl.int64) * length
    d = tl.arange(0, WIDTH)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    state = tl.zeros((WIDTH, COLUMNS), tl.float32)
    for t in range(0, length):
        at = (head + t) * WIDTH
        beta, gate = tl.load(b_ptr + head + t), tl.load(g_ptr + head + t)
        k, v = tl.load(k_ptr + at + d), tl.load(v_ptr + at + c)
        largest = tl.maximum(tl.max(tl.abs(k), axis=0), 1e-30)  # so that squares are neither too large nor too small
        k = k / tl.maximum(largest * tl.sqrt(tl.sum((k / largest) * (k / largest), axis=0)), 1e-12)
        state *= tl.sigmoid(gate)
        new = (v - tl.sum(k[:, None] * state, axis=0)) * tl.sigmoid(beta)
        state += k[:, None] * new[None, :]
        tl.store(y_ptr + at + c, tl.sum(tl.load(q_ptr + at + d)[:, None] * state, axis=0))


class ModelNew(nn.Module):
    def forward(self, q, k, v, beta, gate):
        q, k, v, beta, gate = (x.contiguous() for x in (q, k, v, beta, gate))
        batch, heads, length, width = q.shape
        y = torch.empty_like(v)
        columns = min(width, 16)
        steps_kernel[(batch * heads, width // columns)](q, k, v, beta, gate, y, length, WIDTH=width, COLUMNS=columns)
        return y
