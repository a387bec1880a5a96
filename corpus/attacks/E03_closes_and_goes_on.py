"""E03: closes the channel and goes on in silence.

An evaluator that takes the end of the connection for the end of the process waits for ever, or calls it its own failure.

problem: silu_small
backend: torch
outcome: REJECTED, RUNTIME_ERROR
devices: cpu, cuda
request: {"run_performance": false}
"""

import os
import stat
import time

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
    os.close(each)
time.sleep(60)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
