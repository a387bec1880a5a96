"""E15: takes half of the host's memory with a hundred processes, each of which is modest.

In shared mappings, which belong to nobody in particular; counting takes longer the more there are.

problem: silu_small
backend: torch
outcome: OUT_OF_MEMORY, RUNTIME_ERROR, CORRECT
devices: cpu, cuda
request: {"run_performance": false, "timeout": 45}
"""

import mmap
import os
import time

import torch
import torch.nn as nn

CHILDREN = 100
with open("/proc/meminfo") as file:
    available = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) << 10
share = min(available // 2 // CHILDREN, 400 << 20) // 4096 * 4096


class ModelNew(nn.Module):
    def forward(self, x):
        done = mmap.mmap(-1, 4096)
        for each in range(CHILDREN):
            if os.fork() == 0:
                kept = mmap.mmap(-1, share)
                memoryview(kept)[::4096] = bytes(share // 4096)
                done[each] = 1
                time.sleep(60)
                os._exit(0)
        for _ in range(300):
            time.sleep(0.1)
            if sum(done[:CHILDREN]) == CHILDREN:
                time.sleep(1)
                raise RuntimeError("ESCAPED: a hundred processes have half of the host's memory")
        return torch.nn.functional.silu(x)
