"""Embedding of tokens plus positions, a row for each program.

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
def embed_kernel(ids_ptr, tokens_ptr, positions_ptr, y_ptr, length, features, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    token = tl.load(ids_ptr + row)
    at = tl.arange(0, BLOCK)
    inside = at < features
    x = tl.load(tokens_ptr + token * features + at, mask=inside)
    x += tl.load(positions_ptr + row % length * features + at, mask=inside)
    tl.store(y_ptr + row * features + at, x, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, tokens, length, features):
        super().__init__()
        self.tokens = nn.Embedding(tokens, features)
        self.positions = nn.Embedding(length, features)

    def forward(self, ids):
        ids = ids.contiguous()
        features = self.tokens.embedding_dim
        y = torch.empty(*ids.shape, features, device=ids.device, dtype=self.tokens.weight.dtype)
        block = triton.next_power_of_2(features)
        embed_kernel[(ids.numel(),)](
            ids, self.tokens.weight, self.positions.weight, y, ids.shape[1], features, BLOCK=block
        )
        return y
