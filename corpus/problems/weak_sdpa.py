"""Weak problem: scores so alike that attention is a mean over the values."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BIG = torch.cuda.is_available()
SHAPE = (4, 16, 512, 512) if BIG else (1, 2, 512, 512)


class Model(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v)


def get_inputs():
    return [torch.rand(SHAPE), torch.rand(SHAPE), torch.rand(SHAPE)]


def get_init_inputs():
    return []
