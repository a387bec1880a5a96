"""Causal attention, float32."""

import torch
import torch.nn.functional as F
from torch import nn

BIG = torch.cuda.is_available()
BATCH, HEADS, LENGTH, WIDTH = (2, 8, 1024, 64) if BIG else (1, 2, 24, 16)


class Model(nn.Module):
    def forward(self, query, key, value):
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def get_inputs():
    shape = (BATCH, HEADS, LENGTH, WIDTH)
    return [torch.randn(shape), torch.randn(shape), torch.randn(shape)]


def get_init_inputs():
    return []
