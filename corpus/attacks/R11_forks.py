"""R11: a reference makes processes and threads without end.

They count against its own limit, and end with it.

problem: silu_small
answer: twin_silu_small
backend: torch
outcome: CORRECT, REFERENCE_ERROR
devices: cpu, cuda
request: {"run_performance": false}
"""

import os
import threading
import time

import torch
import torch.nn as nn

for _ in range(3000):
    try:
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
    except OSError:
        break
try:
    for _ in range(3000):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
except RuntimeError:
    pass


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
