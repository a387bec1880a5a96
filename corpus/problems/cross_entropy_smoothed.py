"""The cross entropy of each row, with smoothed labels."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BIG = torch.cuda.is_available()
ROWS, CLASSES = (65536, 50) if BIG else (12, 50)


class Model(nn.Module):
    def forward(self, x, target):
        return F.cross_entropy(x, target, label_smoothing=0.2, reduction="none")


def get_inputs():
    return [torch.randn(ROWS, CLASSES), torch.randint(0, CLASSES, (ROWS,))]


def get_init_inputs():
    return []
