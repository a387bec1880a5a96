"""E15: writes until nothing is left.

Wherever it may write, and in shared memory; sparse files do not count.

problem: silu_small
backend: torch
outcome: CORRECT, OUT_OF_MEMORY, RUNTIME_ERROR
devices: cpu, cuda
request: {"run_performance": false, "timeout": 20}
"""

import os

import torch
import torch.nn as nn

LIMIT = 6 << 30
block = os.urandom(1 << 20) * 16
written = 0
for place in (os.getcwd(), "/dev/shm", "/tmp", "/var/tmp"):
    for number in range(64):
        try:
            with open(f"{place}/kerneldyno-escape-{number}", "wb", buffering=0) as file:
                for _ in range(32):
                    written += file.write(block)
                    if written > LIMIT:
                        raise RuntimeError("ESCAPED: wrote more than 6 GiB")
        except OSError:
            break


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
