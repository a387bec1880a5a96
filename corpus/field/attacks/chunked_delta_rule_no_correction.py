"""S25: the delta rule in chunks, without the triangular system: within a chunk nothing that a key held is replaced.

problem: field_gated_delta_rule
backend: torch
outcome: INCORRECT
devices: cpu, cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    CHUNK = 16

    def forward(self, q, k, v, beta, gate):
        k = F.normalize(k, dim=-1)
        beta, log_decay = beta.sigmoid()[..., None], F.logsigmoid(gate)
        state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
        outs = []
        for start in range(0, q.shape[2], self.CHUNK):
            here = slice(start, start + self.CHUNK)
            qc, kc, vc, bc = (x[:, :, here] for x in (q, k, v, beta))
            total = log_decay[:, :, here].cumsum(2)
            size = total.shape[2]
            later = torch.ones(size, size, dtype=torch.bool, device=q.device).triu(1)
            between = (total[..., :, None] - total[..., None, :]).masked_fill(later, -torch.inf).exp()
            new = bc * (vc - total.exp()[..., None] * (kc @ state))
            scores = (qc @ kc.transpose(2, 3)) * between
            outs.append(total.exp()[..., None] * (qc @ state) + scores @ new)
            rest = (total[..., -1:] - total).exp()[..., None]
            state = total[..., -1, None, None].exp() * state + (kc * rest).transpose(2, 3) @ new
        return torch.cat(outs, 2)
