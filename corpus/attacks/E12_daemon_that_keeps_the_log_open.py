"""E12: leaves a process that holds every descriptor open.

A reader that waits for the end of the output, or of the channel, waits for it; new generations follow one another.

problem: silu_small
backend: torch
outcome: CORRECT
devices: cpu, cuda
request: {"run_performance": false}
"""

import os
import time

import torch
import torch.nn as nn

if os.fork() == 0:
    os.setsid()
    for _ in range(100):  # each lives for a moment and forks the next, so that no list of processes is ever complete
        if os.fork():
            os._exit(0)
        time.sleep(0.05)
    time.sleep(60)
    os._exit(0)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
