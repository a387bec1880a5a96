"""E03: answers in advance, in the harness's own form.

It knows the protocol: before the questions come, well-formed answers are already on their way, so that every question
    is answered one ahead and at once. The outputs are zeros.

problem: silu_small
backend: torch
outcome: INCORRECT, REJECTED, RUNTIME_ERROR
devices: cpu, cuda
request: {"run_performance": false}
"""

import json
import os
import socket
import stat
import struct

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


def frame(value):
    body = json.dumps(value).encode()
    return struct.pack(">I", len(body)) + body


class ModelNew(nn.Module):
    def forward(self, x):
        specs = [["float32", list(x.shape), list(x.stride()), x.is_cuda]]
        call = {"ok": {"structure": {"tensor": 0}, "specs": specs, "launches": 1}}
        for descriptor in sockets():
            os.write(descriptor, frame(call) * 8)
        return torch.zeros_like(x)
