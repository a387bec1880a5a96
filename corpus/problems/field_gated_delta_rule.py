"""The gated delta rule, one step after the other: the state forgets, and what it holds for a key is replaced in part."""

import torch
import torch.nn.functional as F
from torch import nn

BIG = torch.cuda.is_available()
BATCH, HEADS, LENGTH, WIDTH = (4, 8, 128, 64) if BIG else (1, 2, 20, 16)


class Model(nn.Module):
    def forward(self, q, k, v, beta, gate):
        k = F.normalize(k, dim=-1)
        beta, decay = beta.sigmoid(), F.logsigmoid(gate).exp()
        state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
        steps = []
        for t in range(q.shape[2]):
            state = state * decay[:, :, t, None, None]
            held = (k[:, :, t, :, None] * state).sum(-2)
            new = (v[:, :, t] - held) * beta[:, :, t, None]
            state = state + k[:, :, t, :, None] * new[:, :, None, :]
            steps.append((q[:, :, t, :, None] * state).sum(-2))
        return torch.stack(steps, 2)


def get_inputs():
    wide, narrow = (BATCH, HEADS, LENGTH, WIDTH), (BATCH, HEADS, LENGTH)
    return [torch.randn(wide), torch.randn(wide), torch.randn(wide), torch.randn(narrow), torch.randn(narrow) + 2]


def get_init_inputs():
    return []
