"""E15: takes the host's memory with many processes, each of which is modest.

And keeps it in memory files and shared mappings, which belong to nobody in particular.

problem: silu_small
backend: torch
outcome: OUT_OF_MEMORY, RUNTIME_ERROR, TIMEOUT, CORRECT
devices: cpu, cuda
request: {"run_performance": false, "timeout": 20}
"""

import mmap
import os
import time

import torch
import torch.nn as nn

SHARE = 64 << 20
with open("/proc/meminfo") as file:
    available = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) << 10


class ModelNew(nn.Module):
    def forward(self, x):
        shared = mmap.mmap(-1, 4096)
        for each in range(100):
            if os.fork() == 0:
                kept = []
                while sum(map(len, kept)) < min(available // 100, 40 * SHARE):
                    kept.append(mmap.mmap(-1, SHARE))
                    kept[-1][:] = b"x" * SHARE
                shared[each] = 1
                time.sleep(30)
                os._exit(0)
        for _ in range(150):
            time.sleep(0.1)
            if sum(shared[:100]) == 100:
                raise RuntimeError("ESCAPED: every one of a hundred has its share of the host's memory")
        return torch.nn.functional.silu(x)
