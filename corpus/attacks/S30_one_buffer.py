"""S30: one output buffer, returned by every call.

Every answer is right until the next call overwrites it.

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
        if self.y is None or self.y.shape != x.shape:
            self.y = torch.empty_like(x)
        torch._C._nn.gelu(x, out=self.y)
        return self.y
