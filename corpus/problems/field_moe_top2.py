"""A mixture of experts: each token goes to the two experts that its router likes best, weighted by their softmax."""

import torch
import torch.nn.functional as F
from torch import nn

BIG = torch.cuda.is_available()
TOKENS, EXPERTS, WIDTH, HIDDEN = (1024, 8, 512, 512) if BIG else (24, 4, 32, 32)


class Model(nn.Module):
    def __init__(self, experts, width, hidden):
        super().__init__()
        self.up = nn.Parameter(torch.randn(experts, width, hidden) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) * hidden**-0.5)

    def forward(self, x, choice, logits):
        share = logits.softmax(-1)
        y = torch.zeros_like(x)
        for expert in range(self.up.shape[0]):
            hidden = F.silu(x @ self.up[expert])
            weight = (share * (choice == expert)).sum(-1, keepdim=True)
            y = y + weight * (hidden @ self.down[expert])
        return y


def get_inputs():
    choice = torch.rand(TOKENS, EXPERTS).topk(2, dim=-1).indices
    return [torch.randn(TOKENS, WIDTH), choice, torch.randn(TOKENS, 2)]


def get_init_inputs():
    return [EXPERTS, WIDTH, HIDDEN]
