"""Pages are gathered into one cache of the longest sequence, attention is the library's with a mask.

problem: field_paged_attention
backend: torch
outcome: CORRECT
devices: cpu, cuda
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def forward(self, query, keys, values, table, lengths):
        used = -(-int(lengths.max()) // keys.shape[1])
        pages = table[:, :used].long()
        k, v = (cache[pages].flatten(1, 2).transpose(1, 2) for cache in (keys, values))
        seen = torch.arange(k.shape[2], device=k.device)[None] < lengths[:, None]
        return F.scaled_dot_product_attention(query[:, :, None], k, v, attn_mask=seen[:, None, None]).squeeze(2)
