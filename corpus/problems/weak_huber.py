"""Weak problem: a mean over so many uniform numbers that it is their expectation."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BIG = torch.cuda.is_available()
SHAPE = (1024, 32768) if BIG else (32, 32768)


class Model(nn.Module):
    def forward(self, predictions, targets):
        return F.smooth_l1_loss(predictions, targets)


def get_inputs():
    scale = torch.rand(())
    return [torch.rand(SHAPE) * scale, torch.rand(SHAPE)]


def get_init_inputs():
    return []
