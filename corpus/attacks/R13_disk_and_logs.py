"""R13: a reference fills its scratch, and prints without end.

Both have limits, and what it prints reaches no result.

problem: silu_small
answer: twin_silu_small
backend: torch
outcome: CORRECT, REFERENCE_ERROR
devices: cpu, cuda
request: {"run_performance": false}
"""

import os

import torch
import torch.nn as nn

try:
    with open("filler", "wb") as file:
        for _ in range(1 << 14):
            file.write(bytes(1 << 20))
except OSError:
    pass
for _ in range(200):
    os.write(1, b"CORRECT 900x " * 80_000)


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
