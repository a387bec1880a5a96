"""Token embedding plus learned positions, looked up by int64 token numbers."""

import torch
from torch import nn

BIG = torch.cuda.is_available()
TOKENS, LENGTH, BATCH, FEATURES = (32000, 1024, 16, 1024) if BIG else (200, 8, 2, 48)


class Model(nn.Module):
    def __init__(self, tokens, length, features):
        super().__init__()
        self.tokens = nn.Embedding(tokens, features)
        self.positions = nn.Embedding(length, features)

    def forward(self, ids):
        return self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))


def get_inputs():
    return [torch.randint(0, TOKENS, (BATCH, LENGTH))]


def get_init_inputs():
    return [TOKENS, LENGTH, FEATURES]
