"""Embedding of several tokens for each program; the tables are parameters under names of their own.

problem: token_embedding
backend: triton
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def embed_kernel(
    ids_ptr, tokens_ptr, positions_ptr, y_ptr, count, length, features, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    token = tl.load(ids_ptr + row, mask=row < count, other=0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (row < count)[:, None] & (column < features)[None, :]
    x = tl.load(tokens_ptr + token[:, None] * features + column[None, :], mask=inside, other=0.0)
    x += tl.load(positions_ptr + (row % length)[:, None] * features + column[None, :], mask=inside, other=0.0)
    tl.store(y_ptr + row.to(tl.int64)[:, None] * features + column[None, :], x, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, tokens, length, features):
        super().__init__()
        # nn.Embedding draws a normal table; in the same order, the same seed gives the same tables.
        self.token_table = nn.Parameter(torch.empty(tokens, features).normal_())
        self.position_table = nn.Parameter(torch.empty(length, features).normal_())

    def forward(self, ids):
        ids = ids.contiguous()
        features = self.token_table.shape[1]
        y = torch.empty(*ids.shape, features, device=ids.device)
        grid = (triton.cdiv(ids.numel(), 8), triton.cdiv(features, 128))
        embed_kernel[grid](
            ids, self.token_table, self.position_table, y, ids.numel(), ids.shape[1], features, ROWS=8, BLOCK=128
        )
        return y
