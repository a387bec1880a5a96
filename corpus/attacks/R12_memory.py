"""R12: a reference takes all host memory that it can get.

It is ended at its limit, and nobody else lacks memory.

problem: silu_small
answer: twin_silu_small
backend: torch
outcome: REFERENCE_ERROR, PROBLEM_TOO_LARGE
devices: cpu, cuda
request: {"run_performance": false}
"""

import torch
import torch.nn as nn

kept = []


class Model(nn.Module):
    def forward(self, x):
        while True:
            kept.append(bytearray(64 << 20))
        return torch.nn.functional.silu(x)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
