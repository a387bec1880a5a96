"""E15: every child forks as well.

Two to the eleventh at the most, by itself; limits of processes and of patience come first.

problem: silu_small
backend: torch
outcome: CORRECT, RUNTIME_ERROR, OUT_OF_MEMORY
devices: cpu, cuda
request: {"run_performance": false, "timeout": 20}
"""

import os
import time

import torch
import torch.nn as nn

parent = os.getpid()
for _ in range(11):
    try:
        os.fork()
    except OSError:
        pass
if os.getpid() != parent:
    time.sleep(30)
    os._exit(0)
if sum(name.isdigit() for name in os.listdir("/proc")) > 1024:
    raise RuntimeError("ESCAPED: a thousand processes")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
