"""Attention over normalised queries and keys with TF32 products, which the request allows; the norms are exact.

problem: cosine_attention
backend: triton
outcome: CORRECT
devices: cpu, cuda
request: {"allowed_precision": "PRECISION_TF32"}
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, length, temperature, BM: tl.constexpr, BN: tl.constexpr, WIDTH: tl.constexpr
):
    head = tl.program_id(1).to(tl.int64) * length * WIDTH
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, WIDTH)
    q = tl.load(q_ptr + head + m[:, None] * WIDTH + d[None, :], mask=(m < length)[:, None], other=0.0)
    q = q / tl.maximum(tl.sqrt(tl.sum(q * q, axis=1)), 1e-12)[:, None]
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, WIDTH), tl.float32)
    for start in range(0, length, BN):
        n = start + tl.arange(0, BN)
        k = tl.load(k_ptr + head + n[:, None] * WIDTH + d[None, :], mask=(n < length)[:, None], other=0.0)
        k = k / tl.maximum(tl.sqrt(tl.sum(k * k, axis=1)), 1e-12)[:, None]
        s = tl.dot(q, tl.trans(k), input_precision="tf32") * temperature
        s = tl.where((n < length)[None, :], s, -float("inf"))
        bigger = tl.maximum(top, tl.max(s, axis=1))
        p = tl.exp(s - bigger[:, None])
        shrink = tl.exp(top - bigger)
        total = total * shrink + tl.sum(p, axis=1)
        v = tl.load(v_ptr + head + n[:, None] * WIDTH + d[None, :], mask=(n < length)[:, None], other=0.0)
        acc = tl.dot(p, v, acc * shrink[:, None], input_precision="tf32")
        top = bigger
    tl.store(o_ptr + head + m[:, None] * WIDTH + d[None, :], acc / total[:, None], mask=(m < length)[:, None])


class ModelNew(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, query, key, value):
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        batch, heads, length, width = query.shape
        out = torch.empty_like(query)
        bm, bn = (64, 32) if length >= 256 else (16, 16)
        attention_kernel[(triton.cdiv(length, bm), batch * heads)](
            query, key, value, out, length, self.temperature, BM=bm, BN=bn, WIDTH=width
        )
        return out
