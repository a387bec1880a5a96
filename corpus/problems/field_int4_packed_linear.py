"""A linear layer whose weight has four bits, two to a byte (the low one first), with a scale and a zero for each group."""

import torch
from torch import nn

BIG = torch.cuda.is_available()
ROWS, FEATURES, HIDDEN, GROUP = (64, 2048, 2048, 128) if BIG else (16, 64, 32, 16)


class Model(nn.Module):
    def forward(self, x, packed, scale, zero):
        nibbles = torch.stack([packed & 15, packed >> 4], dim=-1).flatten(1)
        weight = nibbles.to(x.dtype) - zero.repeat_interleave(GROUP, 1)
        return x @ (weight * scale.repeat_interleave(GROUP, 1)).t()


def get_inputs():
    packed = torch.randint(0, 256, (HIDDEN, FEATURES // 2), dtype=torch.uint8)
    scale, zero = torch.rand(HIDDEN, FEATURES // GROUP) * 0.1 + 0.01, torch.rand(HIDDEN, FEATURES // GROUP) * 4 + 6
    return [torch.randn(ROWS, FEATURES), packed, scale, zero]


def get_init_inputs():
    return []
