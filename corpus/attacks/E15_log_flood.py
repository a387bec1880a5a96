"""E15: prints a quarter of a gigabyte.

One line without end, then many short ones, on both streams; whoever keeps it all runs out of memory, whoever stops reading stops it.

problem: silu_small
backend: torch
outcome: CORRECT
devices: cpu, cuda
request: {"run_performance": false, "timeout": 20}
"""

import os

import torch
import torch.nn as nn

for _ in range(128):
    for descriptor in (1, 2):
        os.write(descriptor, b"x" * (1 << 20))
os.write(1, b"CORRECT\n" * 100_000)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
