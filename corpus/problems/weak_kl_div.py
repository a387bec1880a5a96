"""Weak problem: distributions over so many values that their divergence depends on one number only."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BIG = torch.cuda.is_available()
SHAPE = (2048, 8192) if BIG else (64, 8192)


class Model(nn.Module):
    def forward(self, predictions, targets):
        return F.kl_div(torch.log(predictions), targets, reduction="batchmean")


def get_inputs():
    scale = torch.rand(())
    return [torch.softmax(torch.rand(SHAPE) * scale, dim=-1), torch.softmax(torch.rand(SHAPE), dim=-1)]


def get_init_inputs():
    return []
