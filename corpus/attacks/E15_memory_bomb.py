"""E15: takes the host's memory, page by page.

Until it gets no more; what it has it keeps. The host's own memory is the bound that it must not reach.

problem: silu_small
backend: torch
outcome: OUT_OF_MEMORY
devices: cpu, cuda
request: {"run_performance": false, "timeout": 60}
"""

import torch
import torch.nn as nn

SIZE = 64 << 20
hoard = []
with open("/proc/meminfo") as file:
    available = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) << 10


class ModelNew(nn.Module):
    def forward(self, x):
        while sum(map(len, hoard)) < available * 3 // 4:
            hoard.append(bytearray(SIZE))
            memoryview(hoard[-1])[::4096] = bytes(SIZE // 4096)  # memory that is not touched is none
        raise RuntimeError("ESCAPED: three quarters of the host's memory")
