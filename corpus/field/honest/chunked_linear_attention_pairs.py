"""Gated linear attention chunk by chunk: within a chunk by pairs of steps, between chunks by the state.

Decays between two steps are differences of running sums, and exp is taken of nothing above zero.

problem: field_gated_linear_attention
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    CHUNK = 16

    def forward(self, q, k, v, gate):
        log_decay = F.logsigmoid(gate) / 16
        state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
        outs = []
        for start in range(0, q.shape[2], self.CHUNK):
            here = slice(start, start + self.CHUNK)
            qc, kc, vc = q[:, :, here], k[:, :, here], v[:, :, here]
            decayed = log_decay[:, :, here].cumsum(2)
            between = decayed[:, :, :, None] - decayed[:, :, None]  # step, earlier step, key dimension
            size = between.shape[2]
            later = torch.ones(size, size, dtype=torch.bool, device=q.device).triu(1)
            between = between.masked_fill(later[:, :, None], -torch.inf).exp()
            scores = torch.einsum("bhtd,bhsd,bhtsd->bhts", qc, kc, between)
            outs.append(scores @ vc + (qc * decayed.exp()) @ state)
            last = decayed[:, :, -1:]
            state = state * last.transpose(2, 3).exp() + (kc * (last - decayed).exp()).transpose(2, 3) @ vc
        return torch.cat(outs, 2)
