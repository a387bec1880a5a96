"""For each row its largest element, where it is first found, and which elements exceed a threshold: a dictionary."""

import torch
from torch import nn

BIG = torch.cuda.is_available()
ROWS, COLUMNS = (8192, 4000) if BIG else (16, 300)


class Model(nn.Module):
    def forward(self, x, threshold):
        largest = x.amax(dim=1)
        # The first place of the largest, also where several are the same.
        return {"largest": largest, "where": (x == largest[:, None]).int().argmax(dim=1), "above": x > threshold}


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), 0.5]


def get_init_inputs():
    return []
