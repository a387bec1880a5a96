"""S30: new tensors over the storage of an old one.

set_ gives a fresh tensor the memory that all answers share.

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
            self.y = torch.empty_like(x)
        torch._C._nn.gelu(x, out=self.y)
        return torch.empty(0, device=x.device).set_(self.y.untyped_storage(), 0, x.shape, x.stride())
