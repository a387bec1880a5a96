"""E15: forks until nobody can.

Children wait, so that all of them are there at once. Bounded by itself at a thousand, which no limit should let it reach.

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

children = 0
try:
    while children < 1000:
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        children += 1
except OSError:
    pass
if children >= 1000:
    raise RuntimeError("ESCAPED: a thousand processes")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
