"""E15: makes files until no more names are left.

Empty ones: a quota of bytes does not count them.

problem: silu_small
backend: torch
outcome: CORRECT
devices: cpu, cuda
request: {"run_performance": false, "timeout": 20}
"""

import os

import torch
import torch.nn as nn

made = 0
os.makedirs("many", exist_ok=True)
try:
    for number in range(300_000):
        os.close(os.open(f"many/{number}", os.O_CREAT | os.O_WRONLY))
        made += 1
except OSError:
    pass
if made >= 300_000:
    raise RuntimeError("ESCAPED: made three hundred thousand files")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
