"""E15: starts threads until nobody can.

Four thousand at the most, by itself.

problem: silu_small
backend: torch
outcome: CORRECT, RUNTIME_ERROR, OUT_OF_MEMORY
devices: cpu, cuda
request: {"run_performance": false, "timeout": 20}
"""

import threading
import time

import torch
import torch.nn as nn

threading.stack_size(64 << 10)
threads = 0
try:
    while threads < 4000:
        threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
        threads += 1
except RuntimeError:
    pass
if threads >= 4000:
    raise RuntimeError("ESCAPED: four thousand threads")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
