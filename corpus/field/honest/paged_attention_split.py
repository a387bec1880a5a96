"""The pages of a sequence are shared by several programs; their sums and maxima are put together by a second kernel.

problem: field_paged_attention
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def paged_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, length_ptr, acc_ptr, stat_ptr, scale, pages,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, PAGE: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    batch, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d, t = tl.arange(0, WIDTH), tl.arange(0, PAGE)
    q = tl.load(q_ptr + (batch * HEADS + head) * WIDTH + d) * scale
    length = tl.load(length_ptr + batch)
    top, total = -float("inf"), 0.0
    acc = tl.zeros((WIDTH,), tl.float32)
    for page in range(tl.program_id(2), tl.cdiv(length, PAGE), SPLITS):
        block = tl.load(table_ptr + batch * pages + page).to(tl.int64)
        at = ((block * PAGE + t) * HEADS + head)[:, None] * WIDTH + d[None, :]
        inside = page * PAGE + t < length
        s = tl.sum(tl.load(k_ptr + at) * q[None, :], axis=1)
        s = tl.where(inside, s, -float("inf"))
        bigger = tl.maximum(top, tl.max(s, axis=0))
        p, shrink = tl.exp(s - bigger), tl.exp(top - bigger)
        acc = acc * shrink + tl.sum(p[:, None] * tl.load(v_ptr + at), axis=0)
        total = total * shrink + tl.sum(p, axis=0)
        top = bigger
    part = (batch * HEADS + head) * SPLITS + tl.program_id(2)
    tl.store(acc_ptr + part * WIDTH + d, acc)
    tl.store(stat_ptr + part * 2, top)  # minus infinity, and a sum of nothing, where there was no page
    tl.store(stat_ptr + part * 2 + 1, total)


@triton.jit
def merge_kernel(acc_ptr, stat_ptr, y_ptr, WIDTH: tl.constexpr, SPLITS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    d, part = tl.arange(0, WIDTH), tl.arange(0, SPLITS)
    tops = tl.load(stat_ptr + (row * SPLITS + part) * 2)
    totals = tl.load(stat_ptr + (row * SPLITS + part) * 2 + 1)
    weight = tl.exp(tops - tl.max(tops, axis=0))
    acc = tl.load(acc_ptr + (row * SPLITS + part)[:, None] * WIDTH + d[None, :])
    y = tl.sum(acc * weight[:, None], axis=0) / tl.sum(totals * weight, axis=0)
    tl.store(y_ptr + row * WIDTH + d, y)


class ModelNew(nn.Module):
    SPLITS = 4

    def forward(self, query, keys, values, table, lengths):
        batch, heads, width = query.shape
        query, keys, values = query.contiguous(), keys.contiguous(), values.contiguous()
        acc = torch.empty(batch, heads, self.SPLITS, width, dtype=torch.float32, device=query.device)
        stats = torch.empty(batch, heads, self.SPLITS, 2, dtype=torch.float32, device=query.device)
        y = torch.empty_like(query)
        paged_kernel[(batch, heads, self.SPLITS)](
            query, keys, values, table, lengths, acc, stats, width**-0.5, table.shape[1],
            HEADS=heads, WIDTH=width, PAGE=keys.shape[1], SPLITS=self.SPLITS,
        )  # fmt: skip
        merge_kernel[(batch * heads,)](acc, stats, y, WIDTH=width, SPLITS=self.SPLITS)
        return y
