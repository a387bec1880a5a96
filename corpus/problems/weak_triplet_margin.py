"""Weak problem: two distances alike on average, so that the margin is the loss."""

import torch
import torch.nn as nn

BIG = torch.cuda.is_available()
SHAPE = (16384, 1024) if BIG else (8192, 64)


class Model(nn.Module):
    def __init__(self, margin):
        super().__init__()
        self.loss = nn.TripletMarginLoss(margin=margin)

    def forward(self, anchor, positive, negative):
        return self.loss(anchor, positive, negative)


def get_inputs():
    scale = torch.rand(())
    return [torch.rand(SHAPE) * scale, torch.rand(SHAPE), torch.rand(SHAPE)]


def get_init_inputs():
    return [1.0]
