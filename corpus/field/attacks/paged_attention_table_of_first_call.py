"""T12: pages are gathered once for each table, by its address and version, and kept like a cache that grows in place.

problem: field_paged_attention
backend: torch
outcome: INCORRECT, REJECTED, CORRECT
honest: paged_attention_gathered
devices: cpu, cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, query, keys, values, table, lengths):
        state = (table.data_ptr(), table._version, keys.data_ptr(), values.data_ptr())
        if state not in self.kept:
            pages = table.long()
            self.kept = {state: [cache[pages].flatten(1, 2).transpose(1, 2) for cache in (keys, values)]}
        k, v = self.kept[state]
        seen = torch.arange(k.shape[2], device=k.device)[None] < lengths[:, None]
        return F.scaled_dot_product_attention(query[:, :, None], k, v, attn_mask=seen[:, None, None]).squeeze(2)
