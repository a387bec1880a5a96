"""E03: announces a frame of four gigabytes.

A reader that allocates what the length says, or waits for all of it, is out of memory or out of service.

problem: silu_small
backend: torch
outcome: REJECTED, RUNTIME_ERROR
devices: cpu, cuda
request: {"run_performance": false}
"""

import os
import stat

import torch
import torch.nn as nn


def sockets():
    """Descriptors of this process that are sockets."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                yield int(name)
        except OSError:
            continue


for each in sockets():
    os.write(each, b"\xff\xff\xff\xff" + b"[" * 65536)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
