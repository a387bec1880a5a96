"""E15: opens descriptors until no more are to be had.

Pipes, memory files and sockets: each is memory of the kernel's.

problem: silu_small
backend: torch
outcome: CORRECT, RUNTIME_ERROR
devices: cpu, cuda
request: {"run_performance": false, "timeout": 20}
"""

import os
import socket

import torch
import torch.nn as nn

held = []
try:
    while len(held) < 200_000:
        held += [*os.pipe(), os.memfd_create("x"), socket.socket(socket.AF_UNIX)]
except OSError:
    pass
if len(held) >= 200_000:
    raise RuntimeError("ESCAPED: two hundred thousand descriptors")
count = len(held)
for each in held[-64:]:  # something has to be left for the work itself
    each.close() if isinstance(each, socket.socket) else os.close(each)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
