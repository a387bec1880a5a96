"""Causal attention in three steps through a workspace: scores by a kernel, softmax in place, values by the library.

problem: causal_attention
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def scores_kernel(q_ptr, k_ptr, s_ptr, length, scale, BM: tl.constexpr, BN: tl.constexpr, WIDTH: tl.constexpr):
    head = tl.program_id(2).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    if tl.program_id(1) * BN < (tl.program_id(0) + 1) * BM:
        d = tl.arange(0, WIDTH)
        base = head * length * WIDTH
        q = tl.load(q_ptr + base + m[:, None] * WIDTH + d[None, :], mask=(m < length)[:, None], other=0.0)
        k = tl.load(k_ptr + base + n[None, :] * WIDTH + d[:, None], mask=(n < length)[None, :], other=0.0)
        s = tl.dot(q, k, input_precision="ieee") * scale
        at = head * length * length + m[:, None] * length + n[None, :]
        tl.store(s_ptr + at, s, mask=(m < length)[:, None] & (n < length)[None, :])


@triton.jit
def causal_softmax_kernel(s_ptr, rows, length, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    n = tl.arange(0, BLOCK)
    at = row.to(tl.int64)[:, None] * length + n[None, :]
    inside = (row < rows)[:, None] & (n < length)[None, :]
    seen = inside & (n[None, :] <= (row % length)[:, None])
    s = tl.load(s_ptr + at, mask=seen, other=-float("inf"))
    top = tl.max(s, axis=1)
    e = tl.exp(s - tl.where(row < rows, top, 0.0)[:, None])
    tl.store(s_ptr + at, e / tl.sum(e, axis=1)[:, None], mask=inside)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scores = None

    def forward(self, query, key, value):
        query, key = query.contiguous(), key.contiguous()
        batch, heads, length, width = query.shape
        shape = (batch * heads, length, length)
        if self.scores is None or self.scores.shape != shape:
            self.scores = torch.empty(shape, device=query.device)
        size = 32 if length >= 256 else 16
        tiles = triton.cdiv(length, size)
        scores_kernel[(tiles, tiles, batch * heads)](
            query, key, self.scores, length, width**-0.5, BM=size, BN=size, WIDTH=width
        )
        rows = batch * heads * length
        each = 8 if length < 256 else 1
        causal_softmax_kernel[(triton.cdiv(rows, each),)](
            self.scores, rows, length, ROWS=each, BLOCK=triton.next_power_of_2(length)
        )
        return torch.bmm(self.scores, value.reshape(batch * heads, length, width)).view_as(query)
