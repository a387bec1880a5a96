"""Gated linear attention in short chunks whose decays are factored.

Queries and keys are scaled to the middle of the chunk.

Chunks of four steps keep both factors within float32.

problem: field_gated_linear_attention
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    CHUNK = 4

    def forward(self, q, k, v, gate):
        batch, heads, length, width = q.shape
        pad = -length % self.CHUNK
        q, k, v, decay = (F.pad(x, (0, 0, 0, pad)) for x in (q, k, v, F.logsigmoid(gate) / 16))
        q, k, v, decay = (x.unflatten(2, (-1, self.CHUNK)) for x in (q, k, v, decay))
        total = decay.cumsum(3)
        middle = total[:, :, :, self.CHUNK // 2 - 1 : self.CHUNK // 2]
        scores = (q * (total - middle).exp()) @ (k * (middle - total).exp()).transpose(-1, -2)
        inner = scores.tril() @ v
        last = total[:, :, :, -1:]
        added = (k * (last - total).exp()).transpose(-1, -2) @ v
        kept = last.transpose(-1, -2).exp()
        state, before = torch.zeros_like(added[:, :, 0]), []
        for chunk in range(added.shape[2]):
            before.append(state)
            state = state * kept[:, :, chunk] + added[:, :, chunk]
        y = inner + (q * total.exp()) @ torch.stack(before, 2)
        return y.flatten(2, 3)[:, :, :length]
