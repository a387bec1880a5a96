"""S30: another view of one buffer for every call.

The tensors are new ones, their memory is not.

problem: normal_gelu
backend: torch
outcome: INCORRECT, REJECTED
devices: cpu, cuda
request: {"output_reuse": "OUTPUT_REUSE_REJECT"}
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        self.y = None

    def forward(self, x):
        if self.y is None:
            self.y = torch.empty(x.numel(), device=x.device)
        y = self.y.view(x.shape)
        torch._C._nn.gelu(x, out=y)
        return y
