"""Attention over normalised queries and keys: one kernel normalises both, a second one attends without a maximum.

The logits cannot be larger than the temperature, so their exponentials cannot overflow.

problem: cosine_attention
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def normalise_kernel(x_ptr, y_ptr, rows, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = row[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    x = tl.load(x_ptr + at, mask=(row < rows)[:, None], other=0.0)
    norm = tl.maximum(tl.sqrt(tl.sum(x * x, axis=1)), 1e-12)
    tl.store(y_ptr + at, x / norm[:, None], mask=(row < rows)[:, None])


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, length, temperature, BM: tl.constexpr, BN: tl.constexpr, WIDTH: tl.constexpr
):
    head = tl.program_id(1).to(tl.int64) * length * WIDTH
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, WIDTH)
    q = tl.load(q_ptr + head + m[:, None] * WIDTH + d[None, :], mask=(m < length)[:, None], other=0.0)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, WIDTH), tl.float32)
    for start in range(0, length, BN):
        n = start + tl.arange(0, BN)
        k = tl.load(k_ptr + head + n[None, :] * WIDTH + d[:, None], mask=(n < length)[None, :], other=0.0)
        p = tl.exp(tl.dot(q, k, input_precision="ieee") * temperature)
        p = tl.where((n < length)[None, :], p, 0.0)
        total += tl.sum(p, axis=1)
        v = tl.load(v_ptr + head + n[:, None] * WIDTH + d[None, :], mask=(n < length)[:, None], other=0.0)
        acc = tl.dot(p, v, acc, input_precision="ieee")
    tl.store(o_ptr + head + m[:, None] * WIDTH + d[None, :], acc / total[:, None], mask=(m < length)[:, None])


class ModelNew(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, query, key, value):
        batch, heads, length, width = query.shape
        value = value.contiguous()
        pair = torch.stack([query, key])
        rows = pair.numel() // width
        normalise_kernel[(triton.cdiv(rows, 32),)](pair, pair, rows, ROWS=32, WIDTH=width)
        out = torch.empty_like(value)
        size = 32 if length >= 256 else 16
        attention_kernel[(triton.cdiv(length, size), batch * heads)](
            pair[0], pair[1], value, out, length, self.temperature, BM=size, BN=size, WIDTH=width
        )
        return out
