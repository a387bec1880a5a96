"""S30: two output buffers, returned in turn.

The answer of the call before is still there, that of the call before it is not.

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
        self.turns = None

    def forward(self, x):
        if self.turns is None:
            self.turns = [torch.empty_like(x), torch.empty_like(x)]
        self.turns.reverse()
        torch._C._nn.gelu(x, out=self.turns[0])
        return self.turns[0]
