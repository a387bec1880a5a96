"""All queries that share a head of keys go as one matrix through two products, split over the sequence by a batch.

problem: field_decode_attention
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    SPLITS = 4

    def forward(self, query, keys, values):
        batch, heads, width = query.shape
        shared, length = keys.shape[1:3]
        q = query.view(batch, shared, heads // shared, width) * width**-0.5
        outs, sums = [], []
        for k, v in zip(keys.chunk(self.SPLITS, 2), values.chunk(self.SPLITS, 2)):
            scores = q @ k.transpose(-1, -2)
            sums.append(scores.logsumexp(-1))
            outs.append((scores - sums[-1][..., None]).exp() @ v)
        weight = torch.stack(sums).softmax(0)
        return (torch.stack(outs) * weight[..., None]).sum(0).view(batch, heads, width)
