"""Linear attention with a forgetting gate for each key dimension, one step after the other."""

import torch
import torch.nn.functional as F
from torch import nn

BIG = torch.cuda.is_available()
BATCH, HEADS, LENGTH, WIDTH = (4, 8, 128, 64) if BIG else (1, 2, 20, 16)


class Model(nn.Module):
    def forward(self, q, k, v, gate):
        log_decay = F.logsigmoid(gate) / 16
        state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
        steps = []
        for t in range(q.shape[2]):
            state = state * log_decay[:, :, t, :, None].exp() + k[:, :, t, :, None] * v[:, :, t, None, :]
            steps.append((q[:, :, t, :, None] * state).sum(-2))
        return torch.stack(steps, 2)


def get_inputs():
    return [torch.randn(BATCH, HEADS, LENGTH, WIDTH) for _ in range(4)]


def get_init_inputs():
    return []
