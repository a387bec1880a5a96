"""One program for each sequence and head walks over the pages of its table with an online maximum.

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
    q_ptr, k_ptr, v_ptr, table_ptr, length_ptr, y_ptr, scale, pages,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    batch, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d, t = tl.arange(0, WIDTH), tl.arange(0, PAGE)
    q = tl.load(q_ptr + (batch * HEADS + head) * WIDTH + d) * scale
    length = tl.load(length_ptr + batch)
    top, total = -float("inf"), 0.0
    acc = tl.zeros((WIDTH,), tl.float32)
    for page in range(0, tl.cdiv(length, PAGE)):
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
    tl.store(y_ptr + (batch * HEADS + head) * WIDTH + d, acc / total)


class ModelNew(nn.Module):
    def forward(self, query, keys, values, table, lengths):
        batch, heads, width = query.shape
        query, keys, values = query.contiguous(), keys.contiguous(), values.contiguous()
        y = torch.empty_like(query)
        paged_kernel[(batch, heads)](
            query, keys, values, table, lengths, y, width**-0.5, table.shape[1],
            HEADS=heads, WIDTH=width, PAGE=keys.shape[1],
        )  # fmt: skip
        return y
