"""Causal attention by powers of two, with the logarithm folded into the scale, as flash kernels do.

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
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, length, scale, BM: tl.constexpr, BN: tl.constexpr, WIDTH: tl.constexpr
):
    head = tl.program_id(1).to(tl.int64) * length * WIDTH
    block = tl.program_id(0)
    m = block * BM + tl.arange(0, BM)
    d = tl.arange(0, WIDTH)
    q = tl.load(q_ptr + head + m[:, None] * WIDTH + d[None, :], mask=(m < length)[:, None], other=0.0)
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, WIDTH), tl.float32)
    # Whole blocks below the diagonal need no mask; the last one does.
    for start in range(0, block * BM, BN):
        n = start + tl.arange(0, BN)
        k = tl.load(k_ptr + head + n[None, :] * WIDTH + d[:, None])
        s = tl.dot(q, k, input_precision="ieee")
        bigger = tl.maximum(top, tl.max(s, axis=1))
        p = tl.exp2((s - bigger[:, None]) * scale)
        shrink = tl.exp2((top - bigger) * scale)
        total = total * shrink + tl.sum(p, axis=1)
        v = tl.load(v_ptr + head + n[:, None] * WIDTH + d[None, :])
        acc = tl.dot(p, v, acc * shrink[:, None], input_precision="ieee")
        top = bigger
    for start in range(block * BM, (block + 1) * BM, BN):
        n = start + tl.arange(0, BN)
        k = tl.load(k_ptr + head + n[None, :] * WIDTH + d[:, None], mask=(n < length)[None, :], other=0.0)
        s = tl.dot(q, k, input_precision="ieee")
        s = tl.where((m[:, None] >= n[None, :]) & (n < length)[None, :], s, -float("inf"))
        bigger = tl.maximum(top, tl.max(s, axis=1))
        p = tl.exp2((s - bigger[:, None]) * scale)
        shrink = tl.exp2((top - bigger) * scale)
        total = total * shrink + tl.sum(p, axis=1)
        v = tl.load(v_ptr + head + n[:, None] * WIDTH + d[None, :], mask=(n < length)[:, None], other=0.0)
        acc = tl.dot(p, v, acc * shrink[:, None], input_precision="ieee")
        top = bigger
    tl.store(o_ptr + head + m[:, None] * WIDTH + d[None, :], acc / total[:, None], mask=(m < length)[:, None])


class ModelNew(nn.Module):
    def forward(self, query, key, value):
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        batch, heads, length, width = query.shape
        out = torch.empty_like(query)
        size = 32 if length >= 256 else 16
        attention_kernel[(triton.cdiv(length, size), batch * heads)](
            query, key, value, out, length, width**-0.5 * 1.4426950408889634, BM=size, BN=size, WIDTH=width
        )
        return out
