"""Average pooling, window 3, stride 1, one zero of padding that counts."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BIG = torch.cuda.is_available()
ROWS, COLUMNS = (16384, 1000) if BIG else (12, 200)


class Model(nn.Module):
    def forward(self, x):
        return F.avg_pool1d(x.unsqueeze(1), 3, stride=1, padding=1).squeeze(1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
