"""E16: answers, and never ends.

Exit handlers, destructors and threads that wait for each other: whoever waits for the process to leave by itself waits for ever.

problem: silu_small
backend: torch
outcome: CORRECT
devices: cpu, cuda
request: {"run_performance": false}
"""

import atexit
import threading

import torch
import torch.nn as nn

lock = threading.Lock()
lock.acquire()
atexit.register(lock.acquire)
threading.Thread(target=lock.acquire).start()


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
