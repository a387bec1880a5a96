"""S25: of the parts of the cache only the last is attended to: recent tokens are what matters, as a rule.

problem: field_decode_attention
backend: triton
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def part_kernel(
    q_ptr, k_ptr, v_ptr, acc_ptr, stat_ptr, scale, length, each,
    SHARE: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    head, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d, t = tl.arange(0, WIDTH), tl.arange(0, BLOCK)
    q = tl.load(q_ptr + head * WIDTH + d) * scale
    cache = head // SHARE * length * WIDTH
    top, total = -float("inf"), 0.0
    acc = tl.zeros((WIDTH,), tl.float32)
    for start in range((SPLITS - 1) * each, length, BLOCK):
        at = cache + (start + t)[:, None] * WIDTH + d[None, :]
        inside = start + t < length
        s = tl.sum(tl.load(k_ptr + at, mask=inside[:, None], other=0.0) * q[None, :], axis=1)
        s = tl.where(inside, s, -float("inf"))
        bigger = tl.maximum(top, tl.max(s, axis=0))
        p, shrink = tl.exp(s - bigger), tl.exp(top - bigger)
        acc = acc * shrink + tl.sum(p[:, None] * tl.load(v_ptr + at, mask=inside[:, None], other=0.0), axis=0)
        total = total * shrink + tl.sum(p, axis=0)
        top = bigger
    tl.store(acc_ptr + (head * SPLITS + part) * WIDTH + d, acc)
    tl.store(stat_ptr + (head * SPLITS + part) * 2, top)
    tl.store(stat_ptr + (head * SPLITS + part) * 2 + 1, total)


@triton.jit
def merge_kernel(acc_ptr, stat_ptr, y_ptr, WIDTH: tl.constexpr, SPLITS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    d, part = tl.arange(0, WIDTH), tl.arange(0, SPLITS)
    tops = tl.load(stat_ptr + (row * SPLITS + part) * 2)
    totals = tl.load(stat_ptr + (row * SPLITS + part) * 2 + 1)
    weight = tl.exp(tops - tl.max(tops, axis=0))
    acc = tl.load(acc_ptr + (row * SPLITS + part)[:, None] * WIDTH + d[None, :])
    tl.store(y_ptr + row * WIDTH + d, tl.sum(acc * weight[:, None], axis=0) / tl.sum(totals * weight, axis=0))


class ModelNew(nn.Module):
    def forward(self, query, keys, values):
        query, keys, values = query.contiguous(), keys.contiguous(), values.contiguous()
        batch, heads, width = query.shape
        length = keys.shape[2]
        splits, block = (8, 64) if query.is_cuda else (2, 16)
        acc = torch.empty(batch, heads, splits, width, dtype=torch.float32, device=query.device)
        stats = torch.empty(batch, heads, splits, 2, dtype=torch.float32, device=query.device)
        y = torch.empty_like(query)
        part_kernel[(batch * heads, splits)](
            query, keys, values, acc, stats, width**-0.5, length, triton.cdiv(length, splits),
            SHARE=heads // keys.shape[1], WIDTH=width, BLOCK=block, SPLITS=splits,
        )  # fmt: skip
        merge_kernel[(batch * heads,)](acc, stats, y, WIDTH=width, SPLITS=splits)
        return y
